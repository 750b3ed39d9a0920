/** Converts a cluster and user of a kubeconfig to a ClusterAccess: CA, proxy and credentials. */
import { randomUUID } from 'node:crypto';
import { open, realpath, rename, rm, stat } from 'node:fs/promises';
import { resolve } from 'node:path';
import { isMap, isScalar, isSeq, parseDocument, type Scalar } from 'yaml';
import { MAX_PEM_BYTES, readPem, readRegularFile } from '../../config/sources/bounded-read.ts';
import { isLoopbackIp } from '../../core/ip-address.ts';
import { Secret } from '../../core/secret.ts';
import type { ClusterAccess, Credentials, ProxyEnv } from './access.ts';
import { ExecPlugin } from './kube-exec.ts';
import { OidcProvider, type OidcTokens } from './kube-oidc.ts';
import {
  type KubeCluster,
  type KubeconfigOptions,
  type KubeUser,
  kubeconfigError,
  type PlacedEntry,
} from './kubeconfig-schema.ts';

type Environment = Pick<KubeconfigOptions, 'env' | 'clock' | 'onMessage'>;
type CredentialSource = ClusterAccess['credentials'];

const OIDC = 'oidc';
const EXEC_EXTENSION = 'client.authentication.k8s.io/exec';

/** Throws SidegateError, whose message contains names of fields and files but never their contents. */
export async function createAccess(
  cluster: PlacedEntry<KubeCluster>,
  user: PlacedEntry<KubeUser> | undefined,
  environment: Environment,
): Promise<ClusterAccess> {
  const server = toServer(cluster.value.server);
  const ca = await readPart(cluster, 'certificate-authority');
  const skipVerify = cluster.value['insecure-skip-tls-verify'] === true;
  if (skipVerify && ca !== undefined) {
    throw kubeconfigError('the cluster has a certificate-authority and insecure-skip-tls-verify: remove one of them');
  }
  const access = {
    server,
    ca: ca?.expose().toString(),
    skipVerify,
    serverName: cluster.value['tls-server-name'] || undefined,
    proxyEnv: toProxyEnv(cluster.value['proxy-url'], server, environment.env),
  };
  if (user === undefined) return { ...access, credentials: async () => ({}) };
  rejectUnsupported(user.value);
  const credentials = await createCredentials(user, environment, () => describeCluster(cluster.value, access));
  return { ...access, headers: toImpersonation(user.value), credentials };
}

function toServer(text: string | null | undefined): URL {
  const server = URL.parse(text || 'none');
  if (server === null || !['https:', 'http:'].includes(server.protocol)) {
    throw kubeconfigError("the cluster's server must be a URL such as https://203.0.113.1:6443");
  }
  if (server.protocol === 'http:' && !isLoopback(server)) {
    throw kubeconfigError(
      `the cluster's server uses http (${server.host}), which would expose the credentials on the network: use https`,
    );
  }
  return server;
}

function isLoopback({ hostname }: URL): boolean {
  return hostname === 'localhost' || isLoopbackIp(hostname);
}

function toProxyEnv(given: string | null | undefined, server: URL, env: Environment['env']): ProxyEnv | undefined {
  if (given) return { HTTPS_PROXY: toProxy(given, 'proxy-url') };
  const fromEnv = env['HTTPS_PROXY'] || env['https_proxy'];
  if (!fromEnv || isLoopback(server)) return undefined;
  return { HTTPS_PROXY: toProxy(fromEnv, 'HTTPS_PROXY'), NO_PROXY: env['NO_PROXY'] || env['no_proxy'] };
}

/** The value can contain a password, so messages do not show it. */
function toProxy(text: string, where: string): string {
  const url = URL.parse(text);
  if (url === null) throw kubeconfigError(`${where} must be a URL such as http://proxy.example:3128`);
  if (url.protocol !== 'http:' && url.protocol !== 'https:') {
    throw kubeconfigError(
      `${where} has the scheme ${url.protocol.slice(0, -1)}, which is not supported: use an http or https proxy`,
    );
  }
  return url.href;
}

function rejectUnsupported(user: KubeUser): void {
  if (user.username) {
    throw kubeconfigError(
      'the user has a name and password, which API servers have not accepted since 1.19: use a token, a certificate or a plugin',
    );
  }
  const provider = user['auth-provider'];
  if (provider !== null && provider !== undefined && provider.name !== OIDC) {
    throw kubeconfigError(
      `the user has the auth-provider ${provider.name ?? ''}, which is not supported: create the kubeconfig again with the provider's exec plugin (gke-gcloud-auth-plugin, kubelogin)`,
    );
  }
}

async function createCredentials(
  user: PlacedEntry<KubeUser>,
  environment: Environment,
  toCluster: () => Readonly<Record<string, unknown>>,
): Promise<CredentialSource> {
  const { exec, token } = user.value;
  const certificate = await createCertificateSource(user);
  const file = toPath(user, 'tokenFile');
  if (file !== undefined)
    return async () => ({ ...(await certificate()), token: (await read(file, 'tokenFile')).expose().toString().trim() });
  if (token) {
    const kept = new Secret(Buffer.from(token.trim()));
    return async () => ({ ...(await certificate()), token: kept.expose().toString() });
  }
  const provider = user.value['auth-provider'];
  if (provider) {
    const oidc = await createOidcProvider(user, environment);
    return async (isRejected) => ({ ...(await certificate()), ...(await oidc.credentials(isRejected)) });
  }
  if (!exec) return certificate;
  const { clock, env, onMessage } = environment;
  const plugin = new ExecPlugin(exec, { clock, env, onMessage, folder: user.folder, cluster: toCluster() });
  return async (isRejected) => ({ ...(await certificate()), ...(await plugin.credentials(isRejected)) });
}

async function createOidcProvider(user: PlacedEntry<KubeUser>, { clock, env, onMessage }: Environment): Promise<OidcProvider> {
  const config = user.value['auth-provider']?.config ?? {};
  const ca = await readPart({ ...user, value: config }, 'idp-certificate-authority');
  const issuer = URL.parse(config['idp-issuer-url'] ?? '');
  return new OidcProvider(config, {
    clock,
    ca: ca?.expose().toString(),
    proxyEnv: issuer === null ? undefined : toProxyEnv(undefined, issuer, env),
    async onRotation(tokens) {
      try {
        await saveTokens({ file: user.file, user: user.name }, tokens);
      } catch (thrown) {
        const why = (thrown as NodeJS.ErrnoException).code ?? (thrown as Error).message;
        onMessage(
          `the OIDC provider replaced the refresh token, but ${user.file} could not be updated (${why}): kubectl may ask you to log in again\n`,
        );
      }
    },
  });
}

/** Reads the files for every request, because short-lived certificates are replaced in place. */
async function createCertificateSource(user: PlacedEntry<KubeUser>): Promise<() => Promise<Credentials>> {
  const [cert, key] = [await readPart(user, 'client-certificate'), await readPart(user, 'client-key')];
  if ((cert === undefined) !== (key === undefined)) {
    throw kubeconfigError(
      `the user has a client-${cert === undefined ? 'key' : 'certificate'} but no client-${cert === undefined ? 'certificate' : 'key'}`,
    );
  }
  return async () => {
    const [certNow, keyNow] = [await readPart(user, 'client-certificate'), await readPart(user, 'client-key')];
    if (certNow === undefined || keyNow === undefined) return {};
    return { cert: certNow.expose().toString(), key: keyNow.expose().toString() };
  };
}

/** Inline base64 data takes precedence over a file. */
async function readPart<Name extends string>(
  { value, folder }: PlacedEntry<{ readonly [Key in Name | `${Name}-data`]?: unknown }>,
  name: Name,
): Promise<Secret | undefined> {
  const data = value[`${name}-data`];
  if (typeof data === 'string' && data !== '') return new Secret(Buffer.from(data, 'base64'));
  const file = value[name];
  return typeof file === 'string' && file !== '' ? read(resolve(folder, file), name) : undefined;
}

function toPath({ value, folder }: PlacedEntry<KubeUser>, name: 'tokenFile'): string | undefined {
  return value[name] ? resolve(folder, value[name]) : undefined;
}

async function read(file: string, field: string): Promise<Secret> {
  const found = await readPem(file);
  if (Buffer.isBuffer(found)) return new Secret(found);
  throw kubeconfigError(`${field} ${found.problem}`);
}

/** The headers of impersonation, as in `kubectl --as`. */
function toImpersonation(user: KubeUser): Record<string, string | string[]> {
  const extra = Object.entries(user['as-user-extra'] ?? {}).map(([name, values]) => [
    `Impersonate-Extra-${encodeURIComponent(name)}`,
    values,
  ]);
  return {
    ...(user.as ? { 'Impersonate-User': user.as } : undefined),
    ...(user['as-uid'] ? { 'Impersonate-Uid': user['as-uid'] } : undefined),
    ...(user['as-groups']?.length ? { 'Impersonate-Group': user['as-groups'] } : undefined),
    ...Object.fromEntries(extra),
  };
}

/** The cluster's description for plugins with provideClusterInfo, in the format of client-go. */
function describeCluster(cluster: KubeCluster, { ca }: Pick<ClusterAccess, 'ca'>): Record<string, unknown> {
  const config = cluster.extensions?.find(({ name }) => name === EXEC_EXTENSION)?.extension;
  return {
    server: cluster.server,
    ...(cluster['tls-server-name'] ? { 'tls-server-name': cluster['tls-server-name'] } : undefined),
    ...(cluster['insecure-skip-tls-verify'] === true ? { 'insecure-skip-tls-verify': true } : undefined),
    ...(ca === undefined ? undefined : { 'certificate-authority-data': Buffer.from(ca).toString('base64') }),
    ...(cluster['proxy-url'] ? { 'proxy-url': cluster['proxy-url'] } : undefined),
    ...(config === undefined ? undefined : { config }),
  };
}

// Writes renewed OIDC tokens to their kubeconfig, like kubectl, because the provider may revoke the old refresh token.

/** Where the tokens are. */
interface TokenPlace {
  readonly file: string;
  /** The name of the user's entry. */
  readonly user: string;
}

interface Edit {
  readonly start: number;
  readonly end: number;
  readonly text: string;
}

/** Replaces the values in place and leaves every other byte as it is. Rejects if the file cannot be read or written, or has no such values. */
async function saveTokens({ file, user }: TokenPlace, { idToken, refreshToken }: OidcTokens): Promise<void> {
  const target = await realpath(file);
  await withLock(`${file}.lock`, async () => {
    const before = (await readRegularFile(target, MAX_PEM_BYTES)).toString('utf8');
    const after = replaceTokens(before, user, { 'id-token': toText(idToken), 'refresh-token': toText(refreshToken) });
    await replaceFile(target, after);
  });
}

/** Uses the same lock as client-go: the process that creates the lock file may write the kubeconfig. */
async function withLock(lock: string, write: () => Promise<void>): Promise<void> {
  const handle = await open(lock, 'wx', 0o600);
  try {
    await handle.close();
    await write();
  } finally {
    await rm(lock, { force: true });
  }
}

/** Keeps owner and mode, because root may run the doctor with the kubeconfig of another user. */
async function replaceFile(target: string, text: string): Promise<void> {
  const { mode, uid, gid } = await stat(target);
  const temporary = `${target}.${randomUUID()}`;
  try {
    const handle = await open(temporary, 'wx', mode & 0o777);
    try {
      await handle.chown(uid, gid);
      await handle.writeFile(text);
      await handle.sync();
    } finally {
      await handle.close();
    }
    await rename(temporary, target);
  } finally {
    await rm(temporary, { force: true });
  }
}

function replaceTokens(text: string, user: string, values: Readonly<Record<string, string>>): string {
  const edits: Edit[] = [];
  for (const [name, value] of Object.entries(values)) {
    const node = findToken(text, user, name);
    // Missing values are not added: without an ID token, kubectl gets one with the refresh token.
    if (node?.range) edits.push({ start: node.range[0], end: node.range[1], text: JSON.stringify(value) });
    else if (name === 'refresh-token') throw new Error('the kubeconfig has no such refresh-token');
  }
  const after = edits
    .toSorted((a, b) => b.start - a.start)
    .reduce((changed, edit) => changed.slice(0, edit.start) + edit.text + changed.slice(edit.end), text);
  // YAML values can span several lines, so the result is parsed again.
  if (edits.length === 0 || findToken(after, user, 'refresh-token')?.value !== values['refresh-token'])
    throw new Error('the kubeconfig would no longer be valid YAML');
  return after;
}

function findToken(text: string, user: string, name: string): Scalar | undefined {
  // The kubeconfig was parsed before, which rejects duplicate keys.
  const document = parseDocument(text, { uniqueKeys: false, logLevel: 'error' });
  const users = document.get('users');
  const entries = document.errors.length === 0 && isSeq(users) ? users.items : [];
  const entry = entries.find((each) => isMap(each) && each.get('name') === user);
  const node = isMap(entry) ? entry.getIn(['user', 'auth-provider', 'config', name], true) : undefined;
  return isScalar(node) ? node : undefined;
}

function toText(secret: OidcTokens['idToken']): string {
  return secret.expose().toString();
}
