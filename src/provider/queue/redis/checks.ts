/** Checks whether a Redis keeps what it accepts. */
import { Cluster } from 'ioredis';
import { SidegateError, toErrorText } from '../../../core/errors.ts';
import type { RedisClient } from '../../../state/redis/client.ts';
import type { QueueWarning } from '../delivery-queue.ts';

/** Settings that the checks depend on. */
export interface CheckSettings {
  readonly allowVolatile: boolean;
  readonly durability: 'local' | 'replicated';
  readonly maxBytes: number;
}

/** The oldest version with all commands that the scripts and BullMQ use. */
const OLDEST_VERSION = [6, 2] as const;
const CHECKED = ['maxmemory', 'maxmemory-policy', 'appendonly', 'appendfsync'] as const;

/** Each stored byte takes about two in Redis. */
const USABLE_MEMORY = 0.5;

type Properties = ReadonlyMap<string, string>;

/** Checks every master. Rejects with a SidegateError of kind `user` if a setting loses events. */
export async function checkRedis(client: RedisClient, settings: CheckSettings): Promise<readonly QueueWarning[]> {
  const nodes: readonly RedisClient[] = client instanceof Cluster ? client.nodes('master') : [client];
  const warnings = new Map<string, QueueWarning>();
  for (const node of nodes) for (const warning of await checkNode(node, settings)) warnings.set(warning.message, warning);
  return [...warnings.values()];
}

async function checkNode(client: RedisClient, { allowVolatile, durability, maxBytes }: CheckSettings): Promise<QueueWarning[]> {
  const info = parseInfo(String(await client.call('INFO')));
  checkVersion(info);
  const config = await readConfig(client);
  const warnings: QueueWarning[] = [];
  const problems: string[] = [];
  const read = (name: string, infoName: string): string | undefined => config?.get(name) ?? info.get(infoName);

  const policy = read('maxmemory-policy', 'maxmemory_policy');
  const limit = read('maxmemory', 'maxmemory');
  if (policy !== undefined && policy !== 'noeviction' && limit !== '0')
    problems.push(`it evicts keys when its memory is full (maxmemory-policy ${policy}); set maxmemory-policy noeviction`);
  const appendOnly = config?.get('appendonly') ?? toYesNo(info.get('aof_enabled'));
  if (appendOnly === 'no')
    problems.push('it forgets what was written since the last snapshot when it restarts (appendonly no); set appendonly yes');
  if (config?.get('appendfsync') === 'no')
    warnings.push({
      message:
        'Redis leaves it to the operating system when to write to disk (appendfsync no); set appendfsync everysec or always',
    });

  if (limit !== undefined && Number(limit) > 0 && Number(limit) * USABLE_MEMORY < maxBytes)
    warnings.push({
      message: `the memory of Redis (maxmemory ${limit}) may be full before the queue is (provider.queue.maxBytes ${maxBytes}), and then events are rejected although the queue has room; set maxBytes to at most half of maxmemory`,
    });

  const unknown = [
    ...(policy === undefined ? ['maxmemory-policy must be noeviction'] : []),
    ...(appendOnly === undefined ? ['appendonly must be yes'] : []),
    ...(config === undefined ? ['appendfsync must be everysec or always'] : []),
  ];
  if (unknown.length > 0)
    warnings.push({ message: `Redis does not permit CONFIG GET, so these settings could not be checked: ${unknown.join('; ')}` });
  if (durability === 'replicated' && info.get('connected_slaves') === '0')
    warnings.push({
      message: 'no replica of Redis is connected: with durability "replicated", events are rejected until one is',
    });

  if (problems.length === 0) return warnings;
  const text = problems.join(', and ');
  if (allowVolatile) return [...warnings, { message: `Redis can lose accepted events: ${text}` }];
  throw new SidegateError(
    'user',
    'queue_volatile',
    `provider.queue.redis: Redis can lose accepted events: ${text}. To accept the loss, set provider.queue.redis.allowVolatile: true`,
  );
}

function checkVersion(info: Properties): void {
  const version = info.get('redis_version') ?? '';
  const [major = 0, minor = 0] = version.split('.').map(Number);
  const [oldestMajor, oldestMinor] = OLDEST_VERSION;
  if (major > oldestMajor || (major === oldestMajor && minor >= oldestMinor)) return;
  const needed = OLDEST_VERSION.join('.');
  throw new SidegateError(
    'user',
    'queue_version',
    `provider.queue.redis: needs Redis ${needed} or newer, and this is Redis ${version}`,
  );
}

/** Undefined if CONFIG is not permitted, as in managed services. */
async function readConfig(client: RedisClient): Promise<Properties | undefined> {
  const found = new Map<string, string>();
  try {
    for (const name of CHECKED) {
      const [, value] = toPairs(await client.call('CONFIG', 'GET', name));
      if (value !== undefined) found.set(name, value);
    }
  } catch (error) {
    if (/^(?:NOPERM|ERR) /.test(toErrorText(error))) return undefined;
    throw error;
  }
  return found;
}

/** RESP2 replies with a list, RESP3 with a map. */
function toPairs(reply: unknown): string[] {
  if (Array.isArray(reply)) return reply.map(String);
  if (reply instanceof Map) return [...reply].flat().map(String);
  return typeof reply === 'object' && reply !== null ? Object.entries(reply).flat().map(String) : [];
}

function toYesNo(flag: string | undefined): string | undefined {
  if (flag === undefined) return undefined;
  return flag === '1' ? 'yes' : 'no';
}

function parseInfo(text: string): Properties {
  const properties = new Map<string, string>();
  for (const line of text.split(/\r?\n/)) {
    const end = line.indexOf(':');
    if (end > 0) properties.set(line.slice(0, end), line.slice(end + 1));
  }
  return properties;
}
