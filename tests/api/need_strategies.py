"""What wire messages of demand are made of, as hypothesis draws it."""

from __future__ import annotations

from hypothesis import strategies as st

from bigfleet.model.need import Operator, Requirement, Toleration

labels = st.text("abcdefghij./-", min_size=1, max_size=12)
amounts = st.dictionaries(
    st.sampled_from(["cpu", "memory", "pods", "nvidia.com/gpu"]), st.integers(1, 2**40), min_size=1
)
requirement = st.one_of(
    st.builds(
        Requirement,
        labels,
        st.sampled_from([Operator.IN, Operator.NOT_IN]),
        st.lists(labels, min_size=1, max_size=3).map(tuple),
    ),
    st.builds(Requirement, labels, st.sampled_from([Operator.EXISTS, Operator.DOES_NOT_EXIST])),
    st.builds(
        Requirement,
        labels,
        st.sampled_from([Operator.GREATER_THAN, Operator.LESS_THAN]),
        st.integers(-(2**63), 2**63 - 1).map(lambda number: (str(number),)),
    ),
)
terms = st.lists(requirement, min_size=1, max_size=2)
tolerations = st.builds(
    Toleration, labels, st.booleans(), st.just(""), st.sampled_from(["", "NoSchedule"])
)
