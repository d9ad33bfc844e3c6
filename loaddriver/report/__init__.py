"""The files of a run: a summary, a report, a JUnit file, the pods. It renders, measures nothing."""
