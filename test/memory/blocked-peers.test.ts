/** Peers that do not read, under the memory limit of the smallest container: what waits for them is limited, and shared fairly. */
import { execFile, spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, test } from 'vitest';
import { FLOODS, type Survey } from '../support/blocked-peers.ts';
import { NO_CGROUPS } from '../support/memory-cgroup.ts';

const SCRIPT = join(import.meta.dirname, '..', 'support', 'blocked-peers.ts');
const SMALL_BUFFERS = `ip link set lo up
echo '4096 16384 65536' > /proc/sys/net/ipv4/tcp_wmem
echo '4096 32768 65536' > /proc/sys/net/ipv4/tcp_rmem
exec "$@"`;
const toCommand = (...args: readonly string[]): string[] => ['-n', 'sh', '-ec', SMALL_BUFFERS, 'sh', ...args];
const NO_NAMESPACES = NO_CGROUPS !== undefined || spawnSync('unshare', toCommand('true')).status !== 0;

describe.skipIf(NO_NAMESPACES)('with 96 MiB, a gate survives', { timeout: 120_000 }, () => {
  test.each(Object.keys(FLOODS))('%s, and keeps a slow client of another network', async (name) => {
    const run = await promisify(execFile)('unshare', toCommand(process.execPath, SCRIPT, name, '96'));
    const { accepted, ...survey } = JSON.parse(run.stdout.trim().split('\n').at(-1) ?? '') as Survey;
    expect(survey).toEqual({ isAlive: true, oomKills: 0, status: 'HTTP/1.1 200 OK', isSlowOpen: true });
    if (!name.startsWith('uploads')) expect(accepted).toBeGreaterThan(50);
  });
});
