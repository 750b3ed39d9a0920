/** Reads the secrets and certificates of the sending side, and reports each problem with its config path. */
import { isAbsolute } from 'node:path';
import { isLoopbackIp } from '../../core/ip-address.ts';
import { type Fault, type Path, type Problem, unwrap, warning } from '../../core/problem.ts';
import { Secret } from '../../core/secret.ts';
import { findBundleProblem } from '../../http/server/tls.ts';
import type { PostgresTarget, PostgresTls } from '../../state/postgres.ts';
import type { ProviderConfig, ProviderEndpointConfig, SecretSource } from '../schema/config.ts';
import { MAX_PEM_BYTES, readCas, readPem, readRegularFileSync } from './bounded-read.ts';
import { readSecret, unwrapSecret } from './secrets.ts';

/** A certificate chain and its key, PEM. */
interface ReadCertificate {
  readonly cert: string;
  readonly key: Secret;
}

/** The contents that an endpoint of the config refers to; undefined if they could not be read. */
export interface EndpointSecrets {
  readonly secret: Secret | undefined;
  readonly previousSecret: Secret | undefined;
  readonly clientCertificate: ReadCertificate | undefined;
}

/** The contents that the section refers to. */
interface ProviderFiles {
  /** For each endpoint. */
  readonly endpoints: readonly EndpointSecrets[];
  readonly token: Secret | undefined;
  /** Undefined for those that could not be read. */
  readonly encryptionKeys: readonly (Secret | undefined)[];
  readonly proxyPassword: Secret | undefined;
  /** The database of the queue. */
  readonly queue: PostgresTarget | undefined;
  readonly ca: string | undefined;
  /** The database of the outbox. */
  readonly outbox: PostgresTarget | undefined;
  readonly problems: readonly Problem[];
}

/** Reads everything that the section refers to, except for the port's TLS files. */
export async function readProviderFiles(config: ProviderConfig): Promise<ProviderFiles> {
  const problems: Problem[] = [];
  const readText = async (source: SecretSource | undefined, path: Path): Promise<Secret | undefined> => {
    return source && unwrapSecret(await readSecret(source), path, problems);
  };
  const readFile = async (file: string | undefined, path: Path): Promise<Buffer | undefined> => {
    return file === undefined ? undefined : unwrap(await readPem(file), path, problems);
  };
  const readEndpoint = async (endpoint: ProviderEndpointConfig, path: Path): Promise<EndpointSecrets> => {
    const cert = await readFile(endpoint.clientCertificate?.certFile, [...path, 'clientCertificate', 'certFile']);
    const key = await readFile(endpoint.clientCertificate?.keyFile, [...path, 'clientCertificate', 'keyFile']);
    return {
      secret: await readText(endpoint.secret, [...path, 'secret']),
      previousSecret: await readText(endpoint.previousSecret, [...path, 'previousSecret']),
      clientCertificate: cert === undefined || key === undefined ? undefined : { cert: cert.toString(), key: new Secret(key) },
    };
  };
  const readDatabase = async (source: SecretSource | undefined, path: Path): Promise<PostgresTarget | undefined> => {
    const url = await readText(source, path);
    const read = url && unwrap(await readPostgresUrl(url), path, problems);
    for (const message of read?.warnings ?? []) problems.push(warning(path, message));
    return read && source && { ...read.target, readPassword: () => readPostgresPassword(source, read.target) };
  };
  const endpoints: EndpointSecrets[] = [];
  for (const [index, endpoint] of config.endpoints.entries())
    endpoints.push(await readEndpoint(endpoint, ['provider', 'endpoints', index]));
  const token = await readText(config.token?.secret, ['provider', 'token', 'secret']);
  const encryptionKeys: (Secret | undefined)[] = [];
  for (const [index, key] of (config.encryption?.keys ?? []).entries())
    encryptionKeys.push(await readText(key, ['provider', 'encryption', 'keys', index]));
  const proxyPassword = await readText(config.egress.proxy?.password, ['provider', 'egress', 'proxy', 'password']);
  const queue = await readDatabase(config.queue.postgres?.url, ['provider', 'queue', 'postgres', 'url']);
  const { caFile } = config.egress;
  const ca = caFile === undefined ? undefined : unwrap(await readCas(caFile), ['provider', 'egress', 'caFile'], problems);
  const outbox = await readDatabase(config.outbox?.postgres.url, ['provider', 'outbox', 'postgres', 'url']);
  return { endpoints, token, encryptionKeys, proxyPassword, queue, ca: ca?.toString(), outbox, problems };
}

/** The files to watch. */
export function toProviderFiles(config: ProviderConfig | undefined): string[] {
  if (config === undefined) return [];
  const sources = config.endpoints.flatMap(({ secret, previousSecret }) => [secret, previousSecret]);
  const others = [
    config.token?.secret,
    ...(config.encryption?.keys ?? []),
    config.egress.proxy?.password,
    config.queue.postgres?.url,
    config.outbox?.postgres.url,
  ];
  const secrets = [...sources, ...others];
  const files = config.endpoints.flatMap(({ clientCertificate }) => [clientCertificate?.certFile, clientCertificate?.keyFile]);
  return [
    ...secrets.flatMap((source) => (source !== undefined && 'file' in source ? [source.file] : [])),
    ...[...files, config.egress.caFile].filter((file) => file !== undefined),
  ];
}

// Reads the URL of a PostgreSQL database, with libpq's parameters for TLS. Messages contain neither the password nor the URL.

/** A target with warnings, or what is wrong with the URL. */
export type PostgresUrlRead = { readonly target: PostgresTarget; readonly warnings: readonly string[] } | Fault;

const EXAMPLE =
  'write postgres://USER:PASSWORD@HOST:PORT/DATABASE, with special characters of the password percent-encoded (/ as %2F)';
const DEFAULT_PORT = 5432;
const MODES: Readonly<Record<string, PostgresTls['verify'] | 'off'>> = {
  disable: 'off',
  require: 'none',
  'verify-ca': 'ca',
  'verify-full': 'full',
};
const MODE_NAMES = 'disable, require, verify-ca or verify-full';
const PARAMETERS = new Set(['host', 'sslmode', 'sslrootcert', 'sslcert', 'sslkey']);

/** Parses the URL and reads the files that it names. */
export async function readPostgresUrl(secret: Secret): Promise<PostgresUrlRead> {
  const text = secret.expose().toString('utf8');
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || !['postgres:', 'postgresql:'].includes(url.protocol) || url.hostname.includes(','))
    return { problem: 'it is not the URL of a PostgreSQL database with one host', hint: EXAMPLE };
  // Otherwise a part of a password that is not encoded would be read as a host, a database or a parameter, and shown in messages.
  if (/[/@]/.test(url.pathname.slice(1)) || url.search.includes('@'))
    return { problem: 'the URL has a / or @ after the database', hint: EXAMPLE };
  const place = toPlace(url);
  if ('problem' in place) return place;
  const isLocal = place.host.startsWith('/') || place.host === 'localhost' || isLoopbackIp(place.host);
  const tls = await readTls(url.searchParams, isLocal);
  if (tls !== undefined && 'problem' in tls) return tls;
  return { target: { ...place, tls }, warnings: findWarnings(url.searchParams, tls, isLocal) };
}

/** The password that the URL has now; undefined if it cannot be read, or is that of another user or server, which needs a restart. */
async function readPostgresPassword(
  source: SecretSource,
  { host, port, database, user }: PostgresTarget,
): Promise<Secret | undefined> {
  const secret = await readSecret(source);
  const read = 'problem' in secret ? secret : await readPostgresUrl(secret.secret);
  if ('problem' in read) return undefined;
  const { target } = read;
  const isSame = target.user === user && target.host === host && target.port === port && target.database === database;
  return isSame ? target.password : undefined;
}

function toPlace(url: URL): Omit<PostgresTarget, 'tls'> | Fault {
  const [user, password, database] = [url.username, url.password, url.pathname.slice(1)].map(decode);
  const host = url.searchParams.get('host') ?? decode(url.hostname.replace(/^\[(.*)\]$/, '$1'));
  if (user === undefined || password === undefined || database === undefined || host === undefined)
    return { problem: 'the URL has a % that is not part of a percent-encoded character', hint: EXAMPLE };
  const missing = Object.entries({ 'a user': user, 'a database': database, 'a host': host }).find(([, value]) => value === '');
  if (missing !== undefined) return { problem: `the URL names no ${missing[0].slice(2)}`, hint: EXAMPLE };
  const port = url.port === '' ? DEFAULT_PORT : Number(url.port);
  return { host, port, user, database, password: password === '' ? undefined : new Secret(Buffer.from(password)) };
}

function decode(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}

/** Without `sslmode`, only a server on this machine is reached without TLS. */
async function readTls(parameters: URLSearchParams, isLocal: boolean): Promise<PostgresTls | undefined | Fault> {
  const mode = parameters.get('sslmode') ?? (isLocal ? 'disable' : 'verify-full');
  const verify = Object.hasOwn(MODES, mode) ? MODES[mode] : undefined;
  if (verify === undefined) return { problem: `sslmode=${mode} is not supported`, hint: `set sslmode to ${MODE_NAMES}` };
  if (verify === 'off') return undefined;
  const ca = parameters.get('sslrootcert') === 'system' ? undefined : await readParameter(parameters, 'sslrootcert', readCas);
  if (typeof ca === 'object') return ca;
  const cert = await readParameter(parameters, 'sslcert');
  if (typeof cert === 'object') return cert;
  const key = await readParameter(parameters, 'sslkey');
  if (typeof key === 'object') return key;
  if ((cert === undefined) !== (key === undefined))
    return { problem: 'only one of sslcert and sslkey is set', hint: 'set both, or neither' };
  const toNow = (name: string, before: string): string => readPemNow(parameters.get(name) ?? '', before);
  return {
    // As libpq does: a CA that is given is used.
    verify: verify === 'none' && ca !== undefined ? 'ca' : verify,
    get ca() {
      return ca && toNow('sslrootcert', ca);
    },
    get certificate() {
      return cert && key ? { cert: toNow('sslcert', cert), key: new Secret(Buffer.from(toNow('sslkey', key))) } : undefined;
    },
  };
}

/** The file as it is now, for a new connection, or as it was before if it cannot be read, or lacks what it had. */
function readPemNow(file: string, before: string): string {
  try {
    const now = readRegularFileSync(file, MAX_PEM_BYTES);
    const isLess = findBundleProblem(before) === undefined && findBundleProblem(now) !== undefined;
    return isLess ? before : now.toString('utf8');
  } catch {
    return before;
  }
}

async function readParameter(parameters: URLSearchParams, name: string, readFile = readPem): Promise<string | undefined | Fault> {
  const file = parameters.get(name);
  if (file === null) return undefined;
  if (!isAbsolute(file)) return { problem: `${name} is not an absolute path`, hint: 'write the whole path of the PEM file' };
  const read = await readFile(file);
  return 'problem' in read ? { ...read, problem: `${name}: ${read.problem}` } : read.toString('utf8');
}

function findWarnings(parameters: URLSearchParams, tls: PostgresTls | undefined, isLocal: boolean): string[] {
  const ignored = [...new Set(parameters.keys())].filter((name) => !PARAMETERS.has(name));
  const warnings = ignored.map((name) => `the parameter ${JSON.stringify(name)} of the URL is ignored`);
  if (tls === undefined && !isLocal) warnings.push('sslmode=disable: events and the password cross the network without TLS');
  if (tls?.verify === 'none')
    warnings.push(
      'sslmode=require does not verify the certificate of the server; use verify-full, with sslrootcert for a private CA',
    );
  return warnings;
}
