/** Reads what commands need to sign or verify like a sender: the scheme, its keys and its URL, from a preset or a route of a config. */

import { compileRoute } from '../app/compiled-route.ts';
import { readKeys, toKeyName } from '../app/keys.ts';
import { loadConfig } from '../config/load/load.ts';
import type { Config, RouteConfig, WebhookConfig } from '../config/schema/config.ts';
import { readSecret, readUrlCredentials } from '../config/sources/secrets.ts';
import { systemClock } from '../core/clock.ts';
import { usageError } from '../core/errors.ts';
import { formatProblem } from '../core/problem.ts';
import { type CandidateKey, toCandidateKey } from '../diagnostics/explain/analysis.ts';
import { compileScheme } from '../verify/schemes/compile.ts';
import type { Tolerance } from '../verify/schemes/description.ts';
import { isWithinTime } from '../verify/schemes/keys.ts';
import type { Scheme } from '../verify/schemes/scheme.ts';
import type { EncodedKey } from '../verify/schemes/sign.ts';
import { addCredentials } from '../verify/schemes/url.ts';
import { readSecretOption, requireSignature, type SecretArguments, toChoice, toEncoding, toScheme } from './input.ts';

/** Options that name a scheme and its keys. */
export interface SenderOptions extends SecretArguments {
  readonly scheme?: string;
  readonly config?: string;
  readonly route?: string;
}

/** A sender, as a preset or a route describes it. */
export interface SigningSender {
  readonly scheme: Scheme;
  readonly contentTypes: readonly string[];
  readonly tolerance: Tolerance | undefined;
  readonly allowDotInId: boolean;
  /** The URL that the sender calls, up to the path, and the path; undefined if they are not known. */
  readonly publicUrl?: string | undefined;
  readonly path?: string | undefined;
  /** The route; undefined for a preset. */
  readonly source?: { readonly config: Config; readonly route: RouteConfig; readonly webhook: WebhookConfig };
}

/** Reads the scheme; throws for one whose deliveries no key can verify. */
export async function readSender({ scheme: name, config: file, route }: SenderOptions): Promise<SigningSender> {
  if (file === undefined) {
    if (route !== undefined) throw usageError('--route requires --config FILE');
    const scheme = toScheme(name ?? 'standard-webhooks');
    requireSignature(scheme);
    const { contentTypes, tolerance } = scheme.description;
    return { scheme, contentTypes, tolerance, allowDotInId: false };
  }
  if (name !== undefined) throw usageError('--config already names the scheme: omit --scheme');
  const config = await readConfig(file);
  const found = findWebhookRoute(config, route);
  const { description, contentTypes, tolerance, allowDotInId } = found.webhook;
  const publicUrl = await readPublicUrl(found.webhook);
  const scheme = compileScheme(description);
  requireSignature(scheme);
  const { path } = found.route.match;
  return { scheme, contentTypes, tolerance, allowDotInId, publicUrl, path, source: { config, ...found } };
}

/** The public URL of a route as its sender has it, with user and password: never show it as it is. */
export async function readPublicUrl({ publicUrl, urlCredentials }: WebhookConfig): Promise<string | undefined> {
  if (publicUrl === undefined || urlCredentials === undefined) return publicUrl;
  const read = await readUrlCredentials(urlCredentials);
  if ('problem' in read) throw usageError(`urlCredentials: ${read.problem}; ${read.hint}`);
  return addCredentials(publicUrl, read.secret);
}

/** Reads a config; throws if it is invalid. */
export async function readConfig(file: string): Promise<Config> {
  const { config, problems } = await loadConfig(file, systemClock, { needsUpstream: false });
  if (config === undefined) throw usageError(problems.map(formatProblem).join('\n'));
  return config;
}

/** The route that `--route` names. */
export function findNamedRoute(routes: readonly RouteConfig[], name: string): RouteConfig {
  const chosen = toChoice(
    name,
    routes.map((route) => route.name),
    '--route',
  );
  return routes.find((route) => route.name === chosen) as RouteConfig;
}

function findWebhookRoute({ routes }: Config, name: string | undefined): { route: RouteConfig; webhook: WebhookConfig } {
  const names = routes.filter(({ webhook }) => webhook !== undefined).map((route) => route.name);
  if (names.length === 0) throw usageError('no route of the config has a webhook section');
  if (name === undefined && names.length > 1) throw usageError(`select a route with --route (${names.join(', ')})`);
  const route = findNamedRoute(routes, name ?? (names[0] as string));
  const { webhook } = route;
  if (webhook === undefined) throw usageError(`the route ${route.name} has no webhook section, so its requests are not signed`);
  return { route, webhook };
}

/** Whether the options name a secret, which is then used instead of the keys of the config. */
export function hasSecretOption({ secretEnv, secretFile }: SecretArguments): boolean {
  return secretEnv !== undefined || secretFile !== undefined;
}

/** Reads the secret of the options, or the first valid key of the route, which the sender uses after a rotation. */
export async function readSigningSecret({ source }: SigningSender, options: SenderOptions): Promise<EncodedKey> {
  const encoding = toEncoding(options.encoding);
  if (source === undefined || hasSecretOption(options)) return { secret: await readSecretOption(options), encoding };
  if (encoding !== undefined) throw usageError('--encoding requires --secret-env or --secret-file');
  const { route, webhook } = source;
  const key = webhook.keys.find((each) => isWithinTime(each, systemClock.now()));
  if (key === undefined)
    throw usageError(`the route ${route.name} has no valid key: use --secret-env or --secret-file with the key of the sender`);
  const read = await readSecret(key.secret);
  if ('problem' in read) throw usageError(`the key ${key.name} of the route ${route.name}: ${read.problem}`);
  return { secret: read.secret, encoding: key.secret.encoding };
}

/** The keys of a route and those of all other routes. */
interface RouteKeys {
  readonly keys: readonly CandidateKey[];
  readonly others: readonly CandidateKey[];
  /** Problems of the keys. */
  readonly notes: readonly string[];
}

/** Reads the keys of a config for the analysis of a request to `route`. */
export async function readRouteKeys({ routes }: Config, route: RouteConfig): Promise<RouteKeys> {
  const keys: CandidateKey[] = [];
  const others: CandidateKey[] = [];
  const notes: string[] = [];
  for (const [index, each] of routes.entries()) {
    const { set, problems } = await readKeys(compileRoute(each), index);
    for (const problem of problems)
      notes.push(`the key ${toKeyName(each, problem)} of the route ${each.name}: ${problem.message}`);
    const found = set.keys.map((key) => toCandidateKey(each.name, key)).filter((key) => key !== undefined);
    (each === route ? keys : others).push(...found);
  }
  return { keys, others, notes };
}

/**
 * The URL that the sender signs; empty if it signs none. That of `--public-url` counts first, then the public URL of the route with the
 * path of `sentTo` or of the route, then `sentTo`.
 */
export function toSignedUrl(sender: SigningSender, given: string | undefined, sentTo?: URL): string {
  const { scheme, publicUrl, path, source } = sender;
  if (!scheme.signsUrl) return '';
  const target = sentTo === undefined ? path : `${sentTo.pathname}${sentTo.search}`;
  const configured = publicUrl === undefined || target === undefined ? undefined : `${publicUrl}${target}`;
  const url = given ?? configured ?? sentTo?.href;
  if (url !== undefined) return url;
  const why = source === undefined ? '' : ', and the route matches more than one path';
  throw usageError(`${scheme.name} signs the URL${why}: use --public-url`);
}
