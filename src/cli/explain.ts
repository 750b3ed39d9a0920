/** `sidegate explain`: explains why a captured request is rejected, with the keys of a config or with one secret. */

import { toRouting } from '../config/rules/gate-identity.ts';
import type { Config, RouteConfig } from '../config/schema/config.ts';
import { systemClock } from '../core/clock.ts';
import { SidegateError, usageError } from '../core/errors.ts';
import { HeaderFields, parseTarget } from '../core/head.ts';
import { Refusal } from '../core/refusal.ts';
import { formatJson, toPrintable } from '../core/text.ts';
import type { Captured } from '../diagnostics/captured/captured.ts';
import { readCaptured } from '../diagnostics/captured/read.ts';
import type { AnalysisInput, RejectedRequest } from '../diagnostics/explain/analysis.ts';
import { RouteTable } from '../gateway/pipeline/router.ts';
import { PRESETS } from '../verify/presets/catalogue.ts';
import { compileScheme } from '../verify/schemes/compile.ts';
import { readBody, readNamedSync, readSecretOption, type SecretArguments, toEncoding, toScheme, toSeconds } from './input.ts';
import { EXIT, type Io } from './io.ts';
import { findNamedRoute, readConfig, readPublicUrl, readRouteKeys } from './sender.ts';
import { formatVerification, toGivenKey, verifyStepwise } from './verify.ts';

/** Options of the command. */
interface ExplainOptions extends SecretArguments {
  readonly config?: string;
  readonly route?: string;
  readonly scheme?: string;
  readonly publicUrl?: string;
  readonly inputFormat?: string;
  readonly format: string;
  readonly entry?: string;
  readonly at?: string;
}

/** The input formats. */
export const CAPTURE_FORMATS = ['http', 'har', 'curl', 'trace'];

/** What to analyze. */
interface ExplainedDelivery {
  readonly route?: string;
  readonly analysisInput: AnalysisInput;
  /** Problems of the keys. */
  readonly notes: readonly string[];
}

/** Exits with 0 if the request is valid. */
export async function explainRequest(file: string | undefined, options: ExplainOptions, io: Io): Promise<number> {
  if ((options.config === undefined) === (options.scheme === undefined))
    throw usageError('use either --config FILE, or --scheme NAME with --secret-env or --secret-file');
  const captured = readCaptured(await readBody(file, io), options, readCurlFile);
  const receivedAt = options.at === undefined ? (captured.at ?? systemClock.now()) : toSeconds(options.at, '--at') * 1_000;
  const { method, target, isBodyComplete = true } = captured;
  const body = isBodyComplete ? captured.body : undefined;
  const request: RejectedRequest = { method, target, headers: new HeaderFields(captured.headers), body, receivedAt };
  const subject =
    options.config === undefined
      ? await toSecretSubject(options, captured, request, io)
      : await toConfigSubject(options, request);
  const verification = await verifyStepwise(subject.analysisInput);
  const notes = [...captured.notes, ...subject.notes];
  if (options.format === 'json') {
    const { lines, ...rest } = verification;
    io.stdout(formatJson({ ...rest, route: subject.route, notes, steps: lines }));
  } else {
    const title = subject.route === undefined ? '' : `route: ${subject.route}, scheme ${subject.analysisInput.scheme.name}\n`;
    io.stdout(title + notes.map((note) => `note: ${toPrintable(note)}\n`).join('') + formatVerification(verification, io));
  }
  return verification.result === 'valid' ? EXIT.ok : EXIT.failed;
}

function readCurlFile(file: string): Buffer {
  return readNamedSync(file, `the file ${file} that the command line names`);
}

/** The subject for a preset and one secret. */
async function toSecretSubject(
  options: ExplainOptions,
  captured: Captured,
  request: RejectedRequest,
  io: Io,
): Promise<ExplainedDelivery> {
  if (options.route !== undefined) throw usageError('--route requires --config FILE');
  const scheme = toScheme(options.scheme ?? '');
  const { description } = scheme;
  checkSigned(description);
  const secret = await readSecretOption(options);
  const silent = options.format === 'json' ? { ...io, stdout: () => undefined } : io;
  const analysisInput: AnalysisInput = {
    request,
    scheme,
    allowDotInId: false,
    tolerance: description.timestamp === undefined ? undefined : description.tolerance,
    publicUrl: options.publicUrl ?? toOrigin(captured, request),
    keys: [toGivenKey(scheme, secret, toEncoding(options.encoding), silent)],
    others: [],
    presets: PRESETS,
    compile: compileScheme,
  };
  return { analysisInput, notes: [] };
}

/** Assumes https: senders rarely sign http URLs, which are typical of the hop between a proxy and the gate. */
function toOrigin({ origin }: Captured, { headers }: RejectedRequest): string {
  return origin ?? `https://${headers.get('host') ?? 'localhost'}`;
}

function checkSigned({ name, signature }: { readonly name: string; readonly signature?: unknown }): void {
  if (signature === undefined) throw usageError(`${name} has no signature in the headers, so keys cannot explain a rejection`);
}

/** The subject for a route of a config, with its keys and those of all other routes. */
async function toConfigSubject(options: ExplainOptions, request: RejectedRequest): Promise<ExplainedDelivery> {
  if (options.secretEnv !== undefined || options.secretFile !== undefined || options.encoding !== undefined)
    throw usageError('--config already names the secrets: omit --secret-env, --secret-file and --encoding');
  const config = await readConfig(options.config ?? '');
  const route = findRoute(config, options.route, request);
  const { webhook } = route;
  if (webhook === undefined) throw usageError(`the route ${route.name} has no webhook section, so its requests are not signed`);
  checkSigned(webhook.description);
  const { keys, others, notes } = await readRouteKeys(config, route);
  const { description, allowDotInId, tolerance } = webhook;
  const publicUrl = options.publicUrl ?? (await readPublicUrl(webhook)) ?? '';
  const scheme = compileScheme(description);
  const base = { request, scheme, allowDotInId, tolerance, keys, others, presets: PRESETS, compile: compileScheme };
  return { route: route.name, analysisInput: { ...base, publicUrl }, notes };
}

function findRoute({ routes }: Config, name: string | undefined, { method, target: raw, headers }: RejectedRequest): RouteConfig {
  if (name !== undefined) return findNamedRoute(routes, name);
  const names = routes.map((route) => route.name).join(', ');
  const target = parseTarget(raw);
  if ('problem' in target)
    throw usageError(`no route matches the request: ${target.problem}; select one with --route (${names})`);
  const table = new RouteTable(routes.map((route) => ({ name: route.name, ...toRouting(route), route })));
  const found = table.find({ method, host: headers.get('host'), target, headers });
  if (!(found instanceof Refusal)) return found.route;
  throw new SidegateError('user', 'usage', `no route matches the request (${found.code}); select one with --route (${names})`);
}
