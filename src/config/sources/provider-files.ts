/** Reads the secrets and certificates of the sending side, and reports each problem with its config path. */
import { type Path, type Problem, unwrap, warning } from '../../core/problem.ts';
import { Secret } from '../../core/secret.ts';
import type { PostgresTarget } from '../../state/postgres.ts';
import type { ProviderConfig, ProviderEndpointConfig, SecretSource } from '../schema/config.ts';
import { readPem } from './bounded-read.ts';
import { readPostgresUrl } from './postgres-url.ts';
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
    return read?.target;
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
  const ca = await readFile(config.egress.caFile, ['provider', 'egress', 'caFile']);
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
