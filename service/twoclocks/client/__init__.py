"""The client: what a training loop holds to talk to Two Clocks without ever being disturbed by it.

    monitor = Monitor("http://127.0.0.1:8900", "run-1", budget_samples=200_000)
    monitor.report(step=1, samples=512, rollout_batch=512, learning_rate=1e-6, reward=0.31, entropy=0.8)
    if monitor.directive.kind == "switch_batch": ...

Making a `Monitor` may raise, with one line that says what to correct. After that nothing here raises, blocks
or touches the network in the caller's thread: reports are queued, written ahead to a disk spool, sent in
batches by a thread of their own, kept through outages and crashes, and counted where they are given up.
"""

from twoclocks.client.monitor import Monitor
from twoclocks.client.null import NullMonitor

__all__ = ["Monitor", "NullMonitor"]
