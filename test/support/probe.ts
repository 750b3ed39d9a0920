/** Probes a URL, in this process. */

import { type Clock, systemClock } from '../../src/core/clock.ts';
import { Secret } from '../../src/core/secret.ts';
import type { CountHandled, Outcome } from '../../src/diagnostics/probe/check.ts';
import { createClient, type Fields, findTarget, type SendRequest } from '../../src/diagnostics/probe/client.ts';
import { inspectScheme } from '../../src/diagnostics/probe/probed-scheme.ts';
import type { ProbeReport } from '../../src/diagnostics/probe/report.ts';
import { runChecks } from '../../src/diagnostics/probe/run-checks.ts';
import { createSample } from '../../src/diagnostics/probe/sample.ts';
import { findPreset } from '../../src/verify/presets/catalogue.ts';
import { compileScheme } from '../../src/verify/schemes/compile.ts';
import type { SchemeDescription } from '../../src/verify/schemes/description.ts';
import type { EncodedKey } from '../../src/verify/schemes/sign.ts';
import { SECRET } from './deliveries.ts';

/** What may differ from a plain probe. */
export interface ProbeSettings {
  /** The name of a preset, or a description. */
  readonly scheme?: string | SchemeDescription;
  readonly secret?: string;
  readonly publicUrl?: string;
  readonly clock?: Clock;
  readonly only?: readonly string[];
  readonly parallel?: number;
  readonly count?: CountHandled;
  readonly template?: Buffer;
  readonly extraFields?: Fields;
  /** Sees every request on its way. */
  readonly watch?: (send: SendRequest) => SendRequest;
}

/** Probes; throws if the endpoint cannot be reached. */
export async function probe(url: string, settings: ProbeSettings = {}): Promise<ProbeReport> {
  const { clock = systemClock, watch = (send) => send } = settings;
  const { scheme = 'standard-webhooks' } = settings;
  const preset = typeof scheme === 'string' ? findPreset(scheme) : scheme;
  const target = await findTarget(url, { ownedHost: undefined, resolve: async () => [] });
  if (preset === undefined || 'problem' in target) throw new Error('nothing to probe');
  const key: EncodedKey = { secret: new Secret(Buffer.from(settings.secret ?? SECRET)), encoding: undefined };
  const report = await runChecks({
    scheme: inspectScheme(compileScheme(preset), key, settings.publicUrl ?? url),
    sample: createSample(preset, settings.template),
    key,
    clock,
    tolerance: preset.tolerance,
    extraFields: settings.extraFields ?? [],
    send: watch(createClient(target, { timeoutMs: 20_000, clock, ca: undefined, isCertificateChecked: true })),
    countHandled: settings.count,
    target: url,
    only: settings.only ?? [],
    parallel: settings.parallel ?? 4,
  });
  if ('unreachable' in report) throw new Error(report.unreachable);
  return report;
}

/** The IDs of the checks with an outcome, in the report's order. */
export function findOutcome({ checks }: ProbeReport, outcome: Outcome): string[] {
  return checks.filter((check) => check.outcome === outcome).map(({ id }) => id);
}
