"""Whether a change made pods slower or dearer: pairs of runs, and a verdict on them.

Two systems under test are measured in interleaved pairs by one harness. Six endpoints decide, each
by the logarithms of its ratios in pairs; everything else describes.
"""
