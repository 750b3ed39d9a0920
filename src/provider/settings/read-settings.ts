/** The settings of the sending side: the config, with everything that it refers to read, parsed and checked. */
import type { ProviderConfig, ProviderEndpointConfig } from '../../config/schema/config.ts';
import { chooseQueue } from '../../config/schema/queue-choice.ts';
import { type EndpointSecrets, readProviderFiles } from '../../config/sources/provider-files.ts';
import type { EpochMilliseconds } from '../../core/clock.ts';
import { error, type Fault, type Path, type Problem } from '../../core/problem.ts';
import type { Secret } from '../../core/secret.ts';
import { createEgressProxy, findProxyProblem } from '../../http/client/proxy-tunnel.ts';
import { compileEgressRules, findUrlProblem, parseHostRule } from '../../http/dial/endpoint-url.ts';
import { findTokenProblem } from '../../http/server/port-access.ts';
import { parseSigningSecret } from '../../verify/sign/signing-keys.ts';
import { createEndpointContext } from '../attempt/sender.ts';
import { findHeaderProblem, type SigningKey } from '../endpoints/endpoint.ts';
import { EndpointCipher, type EndpointDefaults, parseEncryptionKey, toEndpoint } from '../endpoints/endpoint-record.ts';

/** The settings that the provider runs with; do not use it if there is an error among the problems. */
export type ProviderSettings = Awaited<ReturnType<typeof readProviderSettings>>;

/** An endpoint that does not accept a connection within this time counts as down. */
const CONNECT_TIMEOUT_MS = 5_000;
/** The registry replaces it by the time in the store. */
const BEFORE_ALL: EpochMilliseconds = 0;

/** Reads and checks everything. Problems of one endpoint do not hide those of the others. */
export async function readProviderSettings(config: ProviderConfig) {
  const files = await readProviderFiles(config);
  const problems: Problem[] = [...files.problems];
  const rules = compileEgressRules(config.egress);
  const report: Report = (path, found) => {
    if (found !== undefined) problems.push(error(['provider', ...path], found.problem, found.hint));
  };
  const endpoints = config.endpoints.map((endpoint, index) => {
    const reportHere: Report = (path, found) => report(['endpoints', index, ...path], found);
    reportHere(['url'], findUrlProblem(endpoint.url, rules));
    return toConfigEndpoint(endpoint, files.endpoints[index] as EndpointSecrets, toDefaults(config), reportHere);
  });
  const choice = chooseQueue(config.queue);
  checkHosts(config, report);
  if (files.token !== undefined) report(['token', 'secret'], findTokenProblem(files.token));
  return {
    config,
    /** Those of the config. Whether one is disabled is stored in the queue. */
    endpoints: endpoints.filter((endpoint) => endpoint !== undefined),
    defaults: toDefaults(config),
    rules,
    token: files.token,
    /** Undefined if its URL could not be read. */
    queue: choice.kind === 'sqlite' ? choice : files.queue && { ...choice, target: files.queue },
    cipher: toCipher(config, files.encryptionKeys, report),
    proxy: toProxy(config, files.proxyPassword, files.ca, report),
    ca: files.ca,
    /** The database of the outbox; undefined if there is none. */
    outbox: files.outbox,
    problems,
  };
}

function toDefaults({ timeout, concurrency, schedule }: ProviderConfig): EndpointDefaults {
  return { timeout, connectTimeout: Math.min(timeout, CONNECT_TIMEOUT_MS), concurrency, schedule };
}

/** `path`: relative to the section, or to one of its endpoints. */
type Report = (path: Path, found: Fault | undefined) => void;

function checkHosts({ egress }: ProviderConfig, report: Report): void {
  for (const [index, host] of (egress.allowHosts ?? []).entries())
    if (parseHostRule(host) === undefined)
      report(['egress', 'allowHosts', index], {
        problem: `${JSON.stringify(host)} is not a host`,
        hint: 'write a host name, or *.example.com for all subdomains, without a port',
      });
}

function toCipher({ encryption }: ProviderConfig, texts: readonly (Secret | undefined)[], report: Report): EndpointCipher {
  const path = ['encryption', 'keys'];
  const keys = texts.flatMap((text, index) => {
    if (text === undefined) return [];
    const parsed = parseEncryptionKey(text);
    if ('key' in parsed) return parsed.key;
    report([...path, index], parsed);
    return [];
  });
  const cipher = new EndpointCipher(keys);
  if (cipher.keyIds.length < keys.length) report(path, { problem: 'two keys are the same', hint: 'remove one of them' });
  for (const [index, lost] of (encryption?.lostKeys ?? []).entries())
    if (cipher.has(lost))
      report(['encryption', 'lostKeys', index], { problem: `the key ${lost} is among the keys`, hint: 'remove it here' });
  return cipher;
}

function toProxy({ egress: { proxy } }: ProviderConfig, password: Secret | undefined, ca: string | undefined, report: Report) {
  if (proxy === undefined) return undefined;
  const settings = { url: proxy.url, username: proxy.username, password };
  const problem = findProxyProblem(settings);
  report(['egress', 'proxy', 'url'], problem);
  return problem === undefined ? createEgressProxy(settings, ca) : undefined;
}

/** Returns undefined if the endpoint has no usable secret. */
function toConfigEndpoint(
  endpoint: ProviderEndpointConfig,
  secrets: EndpointSecrets,
  defaults: EndpointDefaults,
  report: Report,
) {
  report(['headers'], findHeaderProblem(Object.entries(endpoint.headers)));
  const current = toKey(secrets.secret, ['secret'], report);
  const previous = toKey(secrets.previousSecret, ['previousSecret'], report);
  const clientCertificate = checkPair(secrets.clientCertificate);
  if (clientCertificate !== secrets.clientCertificate) report(['clientCertificate', 'certFile'], CERTIFICATE_FAULT);
  if (current === undefined) return undefined;
  const keys = previous === undefined ? [current] : [current, previous];
  const { name: id, secret: _, previousSecret: __, ...settings } = endpoint;
  const own = { id, source: 'config', keys, disabled: undefined, enabledAt: BEFORE_ALL, clientCertificate } as const;
  return toEndpoint(settings, own, { ...defaults, connectTimeout: CONNECT_TIMEOUT_MS });
}

function toKey(secret: Secret | undefined, path: Path, report: Report): SigningKey | undefined {
  if (secret === undefined) return undefined;
  const key = parseSigningSecret(secret.expose().toString('latin1'));
  if (!('problem' in key)) return key;
  report(path, key);
  return undefined;
}

const CERTIFICATE_FAULT = {
  problem: 'the certificate and its private key do not match',
  hint: 'write both in PEM, the key without a passphrase',
};

/** Returns undefined without a certificate, or if OpenSSL cannot read its PEM. */
function checkPair(pair: EndpointSecrets['clientCertificate']): EndpointSecrets['clientCertificate'] {
  try {
    if (pair !== undefined) createEndpointContext(undefined, pair);
    return pair;
  } catch {
    return undefined;
  }
}
