import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, expect, test } from 'vitest';
import { SECRET } from '../support/deliveries.ts';
import { useApp, useFolder } from '../support/fixtures.ts';
import { findFreePort } from '../support/free-port.ts';
import { startGate, toRoute } from '../support/gate.ts';
import { LAUNCHER } from '../support/process.ts';
import { type Ended, run } from '../support/run.ts';

const folder = useFolder();
const secretFile = join(folder, 'secret');
writeFileSync(secretFile, SECRET);
const app = useApp();
const closers: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

async function gateTo(appPort: number, over: Parameters<typeof toRoute>[1] = {}, port = 0): Promise<number> {
  const gate = await startGate({ listen: { address: `127.0.0.1:${port}` }, routes: [toRoute(appPort, over)] });
  closers.push(() => gate.stop());
  return gate.port;
}

const selfTest = (gatePort: number, appPort: number, ...more: string[]): Promise<Ended> =>
  run(process.execPath, [
    LAUNCHER,
    'self-test',
    ...['--gate', `http://127.0.0.1:${gatePort}/hooks/billing`, '--app', `127.0.0.1:${appPort}`],
    ...['--secret-file', secretFile, ...more],
  ]);

const toRows = ({ stdout }: Ended): (readonly [string, boolean])[] =>
  stdout
    .split('\n')
    .filter((line) => / (ok|WRONG)$/.test(line))
    .map((line) => [line.split(' ')[0] ?? '', line.endsWith(' ok')] as const);

test('four deliveries through a working gate pass, and a table shows them', async () => {
  const appPort = await findFreePort();
  const ended = await selfTest(await gateTo(appPort), appPort);
  expect(ended.stderr).toBe('');
  expect(ended.code).toBe(0);
  expect(ended.stdout.split('\n').slice(1)).toEqual([
    'delivery   expected               actual',
    'signed     2xx, forwarded once    200, forwarded once                  ok',
    'tampered   401, not forwarded     401, not forwarded                   ok',
    'replayed   2xx, forwarded once    200, forwarded once                  ok',
    'stale      401, not forwarded     401, not forwarded                   ok',
    'all 4 as expected',
    '',
  ]);
});

test.each([
  ['remembers no ids', { webhook: { dedup: 'off' } }, ['replayed']],
  ['only observes', { route: { mode: 'observe' } }, ['tampered', 'replayed', 'stale']],
  ['accepts old timestamps', { webhook: { tolerance: '2d', dedup: { retention: '5d' } } }, ['stale']],
  [
    'has another secret',
    { webhook: { keys: [{ name: 'k', secret: { env: 'PATH', encoding: 'utf8' } }] } },
    ['signed', 'replayed'],
  ],
])('a gate that %s is reported', async (_, over, wrong) => {
  const appPort = await findFreePort();
  const ended = await selfTest(await gateTo(appPort, over), appPort);
  expect(ended.code).toBe(1);
  expect(
    toRows(ended)
      .filter(([, isRight]) => !isRight)
      .map(([name]) => name),
    ended.stdout,
  ).toEqual(wrong);
});

test('a gate that starts later is waited for', async () => {
  const [gatePort, appPort] = [await findFreePort(), await findFreePort()];
  const ended = selfTest(gatePort, appPort);
  // It is the app at once, so it knocks at the gate from now on.
  await expect
    .poll(
      () =>
        fetch(`http://127.0.0.1:${appPort}/`).then(
          ({ status }) => status,
          () => 0,
        ),
      { timeout: 20_000 },
    )
    .toBe(200);
  await gateTo(appPort, {}, gatePort);
  expect((await ended).code).toBe(0);
});

test('a missing gate is reported after the wait', async () => {
  const ended = await selfTest(await findFreePort(), await findFreePort(), '--wait', '500ms');
  expect(ended.code).toBe(1);
  expect(ended.stderr).toMatch(/^sidegate: nothing listens at 127\.0\.0\.1:\d+ after 500ms; check that the pod has the sidecar/);
});

test('a port in use, and a missing secret, are reported', async () => {
  const taken = await selfTest(1, app.port);
  expect(taken.code).toBe(1);
  expect(taken.stderr).toMatch(/^sidegate: cannot listen as the app at 127\.0\.0\.1:\d+: .*EADDRINUSE/);
  const missing = await run(process.execPath, [LAUNCHER, 'self-test', '--gate', 'http://127.0.0.1:1/', '--secret-file', '/none']);
  expect([missing.code, missing.stderr]).toEqual([2, expect.stringContaining('/none')]);
  const odd = await run(process.execPath, [LAUNCHER, 'self-test', '--gate', 'localhost', '--secret-file', secretFile]);
  expect([odd.code, odd.stderr]).toEqual([2, expect.stringContaining('--gate localhost is not an http or https URL')]);
});

test.each(['plain words', 'whsec_no-base64', 'whpk_rYE7uzpiQKz9RZj2ZhS6dX/jf2rCU7ZnLyuN8rZtsUo='])(
  'a secret that cannot sign is reported by the command, and not shown: %s',
  async (text) => {
    const file = join(folder, 'odd');
    writeFileSync(file, text);
    const { code, stderr } = await run(process.execPath, [
      LAUNCHER,
      'self-test',
      ...['--gate', 'http://127.0.0.1:1/', '--secret-file', file],
    ]);
    expect(code).toBe(2);
    expect(stderr).toBe(
      `sidegate: ${file} does not contain a Standard Webhooks secret: use whsec_ followed by base64, or whsk_ followed by the base64 of a private key\n`,
    );
  },
);
