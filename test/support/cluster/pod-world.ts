/** Loaded first into every process of a pod: gives it the pod's mounts, addresses and names, without any right that a container runtime needs. */
import dns from 'node:dns';
import fs from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import net from 'node:net';
import { type PodAddresses, toReachable } from './pod-addresses.ts';

/** What the runner tells a process by the variable POD_WORLD. */
export interface PodWorld {
  readonly addresses: PodAddresses;
  /** Path within the container → folder on this machine. */
  readonly mounts: readonly (readonly [string, string])[];
  /** File with the cluster's Services: JSON, name → ClusterIP. */
  readonly hostsFile: string;
  readonly namespace: string;
}

type Loose = (...args: unknown[]) => unknown;
type Functions = Record<string, Loose>;

const FILE_FUNCTIONS = [
  'access',
  'appendFile',
  'createReadStream',
  'createWriteStream',
  'exists',
  'lstat',
  'mkdir',
  'mkdtemp',
  'open',
  'opendir',
  'readFile',
  'readdir',
  'readlink',
  'realpath',
  'rm',
  'stat',
  'unlink',
  'unwatchFile',
  'watch',
  'watchFile',
  'writeFile',
];
const WILDCARDS = new Set<unknown>([undefined, '', '::', '0.0.0.0']);
const LOOPBACKS = new Set<unknown>(['127.0.0.1', '::1', 'localhost']);
const CLUSTER_SUFFIX = /(?:\.svc(?:\.cluster\.local)?)?\.?$/;

const world = process.env['POD_WORLD'] === undefined ? undefined : (JSON.parse(process.env['POD_WORLD']) as PodWorld);
if (world !== undefined) {
  mountFolders(world);
  nameServices(world);
  moveListeners(world);
  moveConnections(world);
  syncBuiltinESMExports();
}

function mountFolders({ mounts }: PodWorld): void {
  const toHost = (path: unknown): unknown => {
    const text = path instanceof URL ? path.pathname : path;
    if (typeof text !== 'string') return path;
    const found = mounts.find(([inside]) => text === inside || text.startsWith(`${inside}/`));
    return found === undefined ? path : found[1] + text.slice(found[0].length);
  };
  const toInside = (path: unknown): unknown => {
    const found = mounts.find(([, outside]) => typeof path === 'string' && path.startsWith(outside));
    return found === undefined ? path : found[0] + (path as string).slice(found[1].length);
  };
  for (const owner of [fs, fs.promises] as unknown as Functions[])
    for (const name of FILE_FUNCTIONS.flatMap((each) => [each, `${each}Sync`])) {
      const original = owner[name];
      if (original === undefined) continue;
      const moved: Loose = (path, ...rest) => original.call(owner, toHost(path), ...rest);
      owner[name] = name === 'realpathSync' ? (...args) => toInside(moved(...args)) : Object.assign(moved, original);
    }
}

function nameServices({ hostsFile, namespace }: PodWorld): void {
  const find = (name: string): string | undefined => {
    const hosts = JSON.parse(fs.readFileSync(hostsFile, 'utf8')) as Record<string, string>;
    const short = name.replace(CLUSTER_SUFFIX, '');
    return hosts[short] ?? hosts[`${short}.${namespace}`];
  };
  const original = dns.lookup as unknown as Loose;
  const lookup: Loose = (name, ...rest) => {
    const address = typeof name === 'string' ? find(name) : undefined;
    const done = rest.at(-1) as Loose;
    if (address === undefined) return original(name, ...rest);
    const isAll = typeof rest[0] === 'object' && (rest[0] as { all?: boolean } | null)?.all === true;
    process.nextTick(() => (isAll ? done(null, [{ address, family: 4 }]) : done(null, address, 4)));
    return {};
  };
  (dns as unknown as Functions)['lookup'] = lookup;
  const promised = dns.promises.lookup as unknown as Loose;
  (dns.promises as unknown as Functions)['lookup'] = async (name, options) => {
    const address = find(String(name));
    if (address === undefined) return promised(name, options);
    const one = { address, family: 4 };
    return (options as { all?: boolean } | undefined)?.all === true ? [one] : one;
  };
}

/** The options among what `listen` or `connect` may be called with. */
function toOptions(args: unknown[]): [Record<string, unknown>, unknown[]] {
  const first = args[0];
  if (typeof first === 'object' && first !== null && !Array.isArray(first)) return [{ ...first }, args.slice(1)];
  if (Number.isNaN(Number(first))) return [{}, args];
  const [port, host, ...rest] = args;
  return typeof host === 'string' ? [{ port, host }, rest] : [{ port }, args.slice(1)];
}

/** All addresses of a pod are two here: a second listener hands what comes to the first. */
function moveListeners({ addresses }: PodWorld): void {
  const original = net.Server.prototype.listen as unknown as Loose;
  const listen = function (this: net.Server, ...args: unknown[]): unknown {
    const [options, rest] = toOptions(args);
    if (options['port'] === undefined) return original.apply(this, args);
    const host = options['host'];
    const isWildcard = WILDCARDS.has(host);
    if (isWildcard) {
      const second = net.createServer({ allowHalfOpen: true }, (socket) => this.emit('connection', socket));
      second.once('error', (error) => this.emit('error', error));
      original.call(second, { port: options['port'], host: addresses.inner });
      this.once('close', () => second.close());
      const close = this.close.bind(this);
      this.close = (done) => {
        second.close();
        return close(done);
      };
    }
    const own = isWildcard ? addresses.outer : LOOPBACKS.has(host) ? addresses.inner : toReachable(String(host));
    return original.call(this, { ...options, host: own, ipv6Only: false }, ...rest);
  };
  (net.Server.prototype as unknown as Functions)['listen'] = listen as unknown as Loose;
}

function moveConnections({ addresses }: PodWorld): void {
  const original = net.Socket.prototype.connect as unknown as Loose;
  const connect = function (this: net.Socket, ...args: unknown[]): unknown {
    // Node's own callers hand over arguments that are normalised already, as one array.
    const isNormal = Array.isArray(args[0]);
    const [options, rest] = toOptions(isNormal ? (args[0] as unknown[]) : args);
    if (options['port'] === undefined) return original.apply(this, args);
    const host = options['host'];
    const isInner = LOOPBACKS.has(host ?? 'localhost');
    options['host'] = isInner ? addresses.inner : toReachable(String(host));
    options['localAddress'] = isInner ? addresses.inner : addresses.outer;
    return original.call(this, options, ...rest.filter((each) => typeof each === 'function'));
  };
  (net.Socket.prototype as unknown as Functions)['connect'] = connect as unknown as Loose;
}
