/** The metrics of the sending side with every series that alerts and dashboards read, as a sending gate exports them. */
import { Registry } from '@prometheus-io/client';
import { ATTEMPT_OUTCOMES } from '../../src/provider/attempt/attempt.ts';
import { createProviderMetrics, EVENT_REJECTIONS } from '../../src/provider/telemetry/provider-metrics.ts';

/** In the text format of Prometheus. */
export function renderProviderMetrics(): Promise<string> {
  const registry = new Registry();
  const metrics = createProviderMetrics([registry]);
  metrics.setEndpoints(['acme', 'inbox:billing', 'api']);
  metrics.accepted('stored', 1);
  for (const reason of EVENT_REJECTIONS) metrics.rejected(reason);
  for (const outcome of ATTEMPT_OUTCOMES) metrics.attempt('acme', outcome, 1);
  metrics.settled('acme', 'delivered');
  metrics.delivered(1);
  const stored = { storedEvents: 1, storedBytes: 1, prunedUntil: 0, usedShares: { endpoint: 0.5, tenant: 0.5 } };
  metrics.queue({ waiting: 1, dead: 1, skipped: 1, events: 1, bytes: 1, ...stored, maxEvents: 10, maxBytes: 10 }, 0, 60);
  metrics.queueWentBack();
  metrics.queueDisk(1, 2);
  const outbox = metrics.watchOutbox();
  outbox.rejected.add(1);
  for (const gauge of [outbox.up, outbox.waiting, outbox.oldestAge]) gauge.value = 1;
  metrics.queueUp(true);
  metrics.backlog('acme', { waiting: 1 });
  metrics.endpointStates({ enabled: 1, failing: 0, disabled: 0 });
  metrics.slots(1, 0);
  metrics.apiRequest('createEvent', 202, 1);
  return registry.metrics();
}
