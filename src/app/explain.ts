/** Explains rejected signatures in the log, the metrics and the journal, and captures them; the sender learns nothing of it. */

import type { Config } from '../config/schema/config.ts';
import type { Clock } from '../core/clock.ts';
import { toErrorText } from '../core/errors.ts';
import { runNextTurn } from '../core/safe-events.ts';
import { type CandidateKey, toCandidateKey } from '../diagnostics/explain/analysis.ts';
import { type Captures, toSecretBytes } from '../diagnostics/explain/captures.ts';
import { type AnalysisContext, type Explained, Explainer } from '../diagnostics/explain/explainer.ts';
import type { Journal } from '../telemetry/journal/journal.ts';
import { PRESETS } from '../verify/presets/catalogue.ts';
import { compileScheme } from '../verify/schemes/compile.ts';
import type { SchemeDescription } from '../verify/schemes/description.ts';
import type { KeyRing } from '../verify/schemes/keys.ts';
import { addCredentials } from '../verify/schemes/url.ts';
import type { CompiledRoute } from './compiled-route.ts';
import type { GateContext } from './context.ts';
import type { GateLogger } from './log-events.ts';
import type { Metrics } from './metrics.ts';

/** The dependencies of the explainer. */
interface ExplainParts {
  readonly clock: Clock;
  readonly logger: GateLogger;
  readonly metrics: Metrics;
  readonly journal: Journal;
  readonly captures: Captures;
  /** For a worker whose decisions another one keeps. */
  readonly onExplained?: GateContext['onExplained'];
  /** The active routes. */
  readonly current: () => { readonly routes: readonly CompiledRoute[]; readonly rings: ReadonlyMap<string, KeyRing> };
}

/** Creates the function that the data port calls for each refusal. */
export function createRefusalListener(config: Config, parts: ExplainParts): Explainer['offer'] {
  const explain = createExplainer(config, parts);
  const { captures } = parts;
  return (route, head, refusal) => {
    captures.offer(route, head, refusal);
    explain?.(route, head, refusal);
  };
}

/** Applies the settings of a config for what is kept of requests: captures and bodies. */
export function applyRecording(
  {
    telemetry,
    routeParts,
  }: {
    readonly telemetry: { readonly captures: Captures };
    readonly routeParts: { readonly bodies: { apply(config: Config, rings: ReadonlyMap<string, KeyRing>): void } };
  },
  config: Config,
  rings: ReadonlyMap<string, KeyRing>,
): void {
  applyCaptures(telemetry.captures, config, rings);
  routeParts.bodies.apply(config, rings);
}

/** Applies the `capture` settings of a config. The secrets are read for each capture, because their files may change. */
function applyCaptures(captures: Captures, { routes }: Config, rings: ReadonlyMap<string, KeyRing>): void {
  const capturing = new Map<string, SchemeDescription>();
  for (const { name, webhook } of routes) if (webhook?.capture === 'failures') capturing.set(name, webhook.description);
  captures.take(capturing, () => listSecrets(rings));
}

/** The secrets of all routes, as bytes to search for. */
export function listSecrets(rings: Iterable<readonly [route: string, ring: KeyRing]>): Buffer[] {
  const all = [...rings];
  const keys = all.flatMap(([route, ring]) => toCandidateKeys(route, ring)).map(({ secret }) => secret.expose());
  const others = all.flatMap(([, { urlCredentials, handshakeToken }]) => [urlCredentials, handshakeToken]);
  return toSecretBytes([...keys, ...others.flatMap((secret) => secret?.expose() ?? [])]);
}

/** Returns undefined if the config disables the analysis. */
function createExplainer({ explain }: Config, parts: ExplainParts): Explainer['offer'] | undefined {
  if (explain === 'off') return undefined;
  const { clock, logger, metrics } = parts;
  const explainer = new Explainer(explain, {
    clock,
    pause: () => new Promise(runNextTurn),
    find: (route) => toContext(route, parts),
    onExplained: (explained) => report(explained, parts),
    onSkipped: (route) => metrics.explained(route, 'skipped'),
    onFailed: (requestId, error) => logger.error('internal_error', { requestId, error: toErrorText(error) }),
  });
  return explainer.offer.bind(explainer);
}

function toContext(name: string, { current }: ExplainParts): AnalysisContext | undefined {
  const { routes, rings } = current();
  const webhook = routes.find(({ config }) => config.name === name)?.webhook;
  // Signatures within the content are verified with certificates, not with keys of the route.
  if (webhook === undefined || webhook.config.description.isSignedInContent === true) return undefined;
  const { scheme } = webhook;
  const { allowDotInId, tolerance, publicUrl = '' } = webhook.config;
  const keys: CandidateKey[] = [];
  const others: CandidateKey[] = [];
  for (const [route, ring] of rings) (route === name ? keys : others).push(...toCandidateKeys(route, ring));
  const signedUrl = addCredentials(publicUrl, rings.get(name)?.urlCredentials);
  return { scheme, allowDotInId, tolerance, publicUrl: signedUrl, keys, others, presets: PRESETS, compile: compileScheme };
}

function toCandidateKeys(route: string, { all }: KeyRing): CandidateKey[] {
  return all.map((key) => toCandidateKey(route, key)).filter((key) => key !== undefined);
}

/** A warning if the cause is proven: the sender has a key, so the setup is wrong. Otherwise it may be any untrusted client. */
function report(
  { route, requestId, findings, isProven }: Explained,
  { logger, metrics, journal, onExplained }: ExplainParts,
): void {
  const causes = findings.map(({ cause }) => cause);
  for (const cause of causes) metrics.explained(route, cause);
  const texts = [...new Set(findings.map(({ text }) => text))];
  const fixes = [...new Set(findings.map(({ fix }) => fix))];
  const fields = { requestId, route, causes, text: texts.join('; '), fix: fixes.join('; ') };
  if (isProven) logger.warn('signature_explained', fields);
  else logger.info('signature_explained', fields);
  const lines = [...texts, ...fixes.map((fix) => `fix: ${fix}`)];
  journal.explain(requestId, lines);
  onExplained?.(requestId, lines);
}
