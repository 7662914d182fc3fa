"""The programs of the chart's hooks, and the operator's rights."""
