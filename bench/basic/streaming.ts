/** Transfers large bodies through the gate, down and up: measures bytes per second of CPU, and the memory in use. */
import { OTHER_CORE, run } from '../children.ts';
import { readCpuMicroseconds, readRssMebibytes } from '../machine.ts';
import type { BasicEnvironment } from './basic-environment.ts';
import type { Gate, GateName } from './rivals.ts';
import type { Cast } from './rows.ts';
import type { User } from './users.ts';

/** The prefixes of the rows; `down` or `up` follows. */
export const STREAMING = {
  buffered: 'nginx, buffering on',
  unbuffered: 'nginx, buffering off',
  caddy: 'Caddy',
  own: 'sidegate',
} as const;
/** The direction of the transfer. */
export const DIRECTIONS = ['down', 'up'] as const;
/** The figure of the goal. */
export const BYTES_PER_CPU = 'MiB per CPU second';

const CONTESTANTS: readonly { readonly label: string; readonly gate: GateName; readonly area: string }[] = [
  { label: STREAMING.buffered, gate: 'nginx', area: 'buffered' },
  { label: STREAMING.unbuffered, gate: 'nginx', area: 'unbuffered' },
  { label: STREAMING.caddy, gate: 'caddy', area: 'steady' },
  { label: STREAMING.own, gate: 'sidegate', area: 'steady' },
];
/** One after the other on one connection. */
const TRANSFERS = 3;
const MEBIBYTE = 2 ** 20;
const LOOK_EVERY_MS = 50;
const WITHIN_MS = 60_000;
const REPORT = '%{http_code} %{size_download} %{size_upload}\\n';

/** Runs the scenario with all, in both directions. */
export async function playStreaming(cast: Cast): Promise<void> {
  for (const direction of DIRECTIONS) {
    for (const { label, gate: name, area } of CONTESTANTS) {
      const gate = cast.gates.get(name);
      if (gate === undefined) continue;
      const { figures, wrong } = await transfer(cast.environment, gate, area, direction);
      cast.tell({ scenario: 'streaming', label: `${label}, ${direction}`, figures, wrong });
    }
  }
}

/** Transfers the body several times, and measures. */
export async function transfer(
  environment: BasicEnvironment,
  gate: Gate,
  area: string,
  direction: 'down' | 'up',
): Promise<{ mebibytes: number; figures: Record<string, number>; wrong: string[] }> {
  let rss = 0;
  const look = setInterval(() => {
    rss = Math.max(rss, readRssMebibytes(gate.pids));
  }, LOOK_EVERY_MS);
  const before = readCpuMicroseconds(gate.pids);
  const startedAt = performance.now();
  try {
    const args = toCurl(environment, `http://127.0.0.1:${gate.port}/${area}/${direction}load`, direction);
    const text = await run({ core: OTHER_CORE, command: 'curl', args }, WITHIN_MS);
    const seconds = (performance.now() - startedAt) / 1000;
    const mebibytes = (TRANSFERS * environment.transfer.bytes) / MEBIBYTE;
    const cpuSeconds = (readCpuMicroseconds(gate.pids) - before) / 1e6;
    const figures = { [BYTES_PER_CPU]: mebibytes / cpuSeconds, 'MiB/s': mebibytes / seconds, 'highest RSS MiB': rss };
    return { mebibytes, figures, wrong: findWrongTransfers(text, environment.transfer.bytes, direction) };
  } finally {
    clearInterval(look);
  }
}

function toCurl({ users, transfer: { file } }: BasicEnvironment, url: string, direction: 'down' | 'up'): string[] {
  const [{ name, password }] = users.steady as readonly [User, ...User[]];
  const common = ['--silent', '--show-error', '--user', `${name}:${password}`, '--write-out', REPORT, '--header', 'Expect:'];
  const one = direction === 'down' ? ['--output', '/dev/null', url] : ['--output', '/dev/null', '--upload-file', file, url];
  return [...common, ...Array.from({ length: TRANSFERS }, () => one).flat()];
}

function findWrongTransfers(text: string, bytes: number, direction: 'down' | 'up'): string[] {
  const lines = text.trim().split('\n');
  const whole = lines.filter((line) => {
    const [status, down, up] = line.split(' ').map(Number);
    return status === 200 && (direction === 'down' ? down : up) === bytes;
  });
  return whole.length === TRANSFERS ? [] : [`${TRANSFERS - whole.length} of ${TRANSFERS} transfers broke: ${lines.join('; ')}`];
}
