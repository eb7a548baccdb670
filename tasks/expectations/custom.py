"""Expectations that the library lacks; importing this module loads Great Expectations."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from great_expectations.core.metric_domain_types import MetricDomainTypes
from great_expectations.execution_engine import PandasExecutionEngine
from great_expectations.expectations.expectation import BatchExpectation, ColumnMapExpectation
from great_expectations.expectations.metrics import (
    ColumnMapMetricProvider,
    column_condition_partial,
)
from great_expectations.expectations.metrics.metric_provider import metric_value
from great_expectations.expectations.metrics.table_metric_provider import TableMetricProvider

from tasks.expectations.findings import holds


class TextHoldsNo(ColumnMapMetricProvider):  # type: ignore[misc]  # the library is untyped to us
    """Whether each text is free of what a pattern finds."""

    condition_metric_name = "column_values.hold_no_finding"
    condition_value_keys = ("finding",)

    @column_condition_partial(engine=PandasExecutionEngine)  # type: ignore[untyped-decorator]
    def _pandas(cls, column: pd.Series, finding: str, **_: Any) -> pd.Series:  # noqa: N805
        clean = [not holds(finding, str(text)) for text in column.to_numpy(dtype=object)]
        return pd.Series(clean, index=column.index, dtype=bool)


class ExpectTextToHoldNo(ColumnMapExpectation):  # type: ignore[misc]
    """Expect no text to hold what the pattern of this name finds."""

    finding: str

    map_metric = "column_values.hold_no_finding"
    success_keys = ("finding", "mostly")


class KeysInSeveralSplits(TableMetricProvider):  # type: ignore[misc]
    """Keys whose rows lie in more than one split, sorted."""

    metric_name = "table.keys_in_several_splits"
    value_keys = ("key", "split")

    @metric_value(engine=PandasExecutionEngine)  # type: ignore[untyped-decorator]
    def _pandas(
        cls,  # noqa: N805
        execution_engine: PandasExecutionEngine,
        metric_domain_kwargs: dict[str, Any],
        metric_value_kwargs: dict[str, Any],
        **_: Any,
    ) -> list[str]:
        frame, _domain, _accessor = execution_engine.get_compute_domain(
            metric_domain_kwargs, domain_type=MetricDomainTypes.TABLE
        )
        key, split = metric_value_kwargs["key"], metric_value_kwargs["split"]
        pairs = frame[[key, split]].dropna()
        # Arrays of one number per row: a frame of distinct pairs takes twice the memory.
        keys, names = pd.factorize(pairs[key])
        splits, _ = pd.factorize(pairs[split])
        first = np.empty(len(names), splits.dtype)
        first[keys[::-1]] = splits[::-1]
        leaking = np.unique(keys[splits != first[keys]])
        return sorted(names[leaking].tolist())


class ExpectNoLeakage(BatchExpectation):  # type: ignore[misc]
    """Expect every key to have all of its rows in one split."""

    key: str
    split: str = "split"

    metric_dependencies = ("table.keys_in_several_splits",)
    success_keys = ("key", "split")

    def _validate(
        self,
        metrics: Mapping[str, Any],
        runtime_configuration: dict[str, Any] | None = None,  # noqa: ARG002 - the library's signature
        execution_engine: Any = None,  # noqa: ARG002
    ) -> dict[str, Any]:
        leaking = metrics["table.keys_in_several_splits"]
        return {
            "success": not leaking,
            "result": {"observed_value": len(leaking), "details": {"sample_ids": leaking[:10]}},
        }
