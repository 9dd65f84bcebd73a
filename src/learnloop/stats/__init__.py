"""Intervals, tests and counts behind every number that is printed.

The unit of all of them is the task (or the group, where tasks share one), never the attempt:
attempts of one task are alike, and an interval that takes them for independent is far too narrow.
"""

from learnloop.stats.interval import (
    Estimate,
    clustered_share,
    deviation,
    holm,
    log_ratio,
    normal_of_t,
    normal_quantile,
    pass_at_k,
    pass_hat_k,
    plus_two_sd,
    plus_two_t,
    quantile,
    sign_flip_p,
    t_interval,
    t_quantile,
    tasks_needed,
    wilson,
)
from learnloop.stats.ratio import (
    BOOTSTRAP_DRAWS,
    Floats,
    UnitSums,
    UnitValues,
    change_of_quantiles,
    change_of_ratios,
    cost_mean,
    ratio_of_sums,
    resamples,
    swapped_distance_p95,
)
from learnloop.stats.signal import (
    Cells,
    signal_beta_binomial,
    signal_npmle,
    signal_unbiased,
)

__all__ = [
    "BOOTSTRAP_DRAWS",
    "Cells",
    "Estimate",
    "Floats",
    "UnitSums",
    "UnitValues",
    "change_of_quantiles",
    "change_of_ratios",
    "clustered_share",
    "cost_mean",
    "deviation",
    "holm",
    "log_ratio",
    "normal_of_t",
    "normal_quantile",
    "pass_at_k",
    "pass_hat_k",
    "plus_two_sd",
    "plus_two_t",
    "quantile",
    "ratio_of_sums",
    "resamples",
    "sign_flip_p",
    "signal_beta_binomial",
    "signal_npmle",
    "signal_unbiased",
    "swapped_distance_p95",
    "t_interval",
    "t_quantile",
    "tasks_needed",
    "wilson",
]
