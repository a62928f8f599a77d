"""The log line of a message or a step of a job, with its metrics."""

import time
from collections.abc import Generator
from contextlib import contextmanager

from strandline.jobs.worker_resources import JobMetrics
from strandline.observability import downsample, emf_fields, logger, trace_context


@contextmanager
def job_log_context(tally: JobMetrics, function: str, kind: str, trace: str) -> Generator[None]:
    """Log a job's lines with one trace id; the last line holds its metrics."""
    start = time.monotonic()
    with trace_context(trace):
        try:
            yield
        except Exception:
            tally.failures = max(tally.failures, 1)
            raise
        finally:
            metrics: dict[str, float | list[float]] = {
                "DurationMilliseconds": round((time.monotonic() - start) * 1000, 1),
                "EventsEmbedded": tally.embedded_events,
                "EmbeddingMilliseconds": tally.embedding_ms,
                "WorkFailures": tally.failures,
                "FoldMilliseconds": tally.fold_ms,
                "SimilarityCosine": downsample(tally.cosines),
                **{name: downsample(values) for name, values in tally.samples.items()},
                **tally.counters,
            }
            if tally.due_work:
                metrics["ScopesDue"] = sum(due.scopes for due in tally.due_work)
                metrics["ScopesStuck"] = sum(due.stuck_scopes for due in tally.due_work)
                metrics["OldestDueSeconds"] = max(due.seconds for due in tally.due_work)
                metrics["OldestUnembeddedSeconds"] = max(
                    d.unembedded_seconds for d in tally.due_work
                )
                metrics["OldestUnfoldedSeconds"] = max(d.unfolded_seconds for d in tally.due_work)
            swept_seconds = [due.erasure_seconds for due in tally.due_work]
            if erasure_seconds := [*swept_seconds, *tally.erasure_seconds]:
                metrics["OldestErasureSeconds"] = round(max(erasure_seconds), 1)
            logger.info("job", extra=emf_fields({"function": function, "job": kind}, metrics))
