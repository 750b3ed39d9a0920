import { once } from 'node:events';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { expect, test } from 'vitest';
import { holdResponses } from '../support/app.ts';
import { send } from '../support/client.ts';
import { makeDelivery } from '../support/deliveries.ts';
import { useApp } from '../support/fixtures.ts';
import { toRoute, until } from '../support/gate.ts';
import { type GateProcess, startGateProcess } from '../support/process.ts';

/** Node loads it before the gate; the gate itself has no such hook. */
const FAULT = pathToFileURL(join(import.meta.dirname, '..', 'support', 'escaping-error.ts')).href;
const app = useApp();

const start = (drain: string, grace = '200ms'): Promise<GateProcess> =>
  startGateProcess({ shutdown: { grace, drain }, routes: [toRoute(app.port)] }, [], { NODE_OPTIONS: `--import=${FAULT}` });

test('an unhandled exception turns readiness off, lets requests finish, and exits 1', async () => {
  const gate = await start('10s', '1500ms');
  const finish = holdResponses(app, 'late but whole');
  const slow = send(gate.port, makeDelivery());
  await until(() => app.received.length === 1);
  gate.child.kill('SIGUSR2');
  await until(async () => (await fetch(`http://127.0.0.1:${gate.adminPort}/readyz`)).status === 503);
  const metrics = await (await fetch(`http://127.0.0.1:${gate.adminPort}/metrics`)).text();
  expect(metrics).toMatch(/sidegate_escaped_errors_total\{scope="process"\} [1-9]/);
  finish();
  expect((await slow).text).toBe('late but whole');
  expect(await gate.exit).toBe(1);
  expect(gate.log().at(-1)).toMatchObject({ msg: 'stopped', complete: true });
});

test.each([
  ['SIGTERM', 'a signal'],
  ['SIGUSR2', 'an exception'],
  ['twice', 'two signals'],
] as const)(
  'nobody reads the log (%s): after %s, the process finishes its requests, and ends',
  { timeout: 60_000 },
  async (signal, _) => {
    const gate = await start('20s', '0ms');
    gate.child.stdout?.pause();
    // More lines than a pipe and the streams at its ends hold.
    for (let sent = 0; sent < 1_500; sent += 50)
      await Promise.all(
        Array.from({ length: 50 }, () => fetch(`http://127.0.0.1:${gate.port}/none`).then((each) => each.text())),
      );
    const finish = holdResponses(app, 'late but whole');
    const slow = send(gate.port, makeDelivery()).catch(() => 'cut');
    await until(() => app.received.length === 1);
    const ended = once(gate.child, 'exit');
    gate.child.kill(signal === 'twice' ? 'SIGTERM' : signal);
    await until(async () => (await fetch(`http://127.0.0.1:${gate.adminPort}/readyz`)).status === 503);
    const started = performance.now();
    if (signal === 'twice') gate.child.kill('SIGTERM');
    else {
      finish();
      expect(await slow).toMatchObject({ text: 'late but whole' });
    }
    // Node would wait for the thread that writes, so the process kills itself.
    expect(await ended).toEqual([null, 'SIGKILL']);
    expect(performance.now() - started).toBeLessThan(10_000);
    gate.child.stdout?.resume();
  },
);

test('repeated exceptions do not shorten the drain, fill the log or show their messages', async () => {
  const gate = await start('500ms');
  app.handler = () => undefined;
  const stuck = send(gate.port, makeDelivery()).catch(() => 'cut');
  await until(() => app.received.length === 1);
  gate.child.kill('SIGUSR2');
  expect(await stuck).toBe('cut');
  expect(await gate.exit).toBe(1);
  const lines = gate.log();
  expect(lines.at(-1)).toMatchObject({ msg: 'stopped', complete: false });
  expect(lines.filter(({ msg }) => msg === 'draining')).toEqual([expect.objectContaining({ reason: 'escaped_error' })]);
  const escaped = lines.filter(({ msg }) => msg === 'escaped_error');
  expect(escaped).toHaveLength(10);
  expect(escaped).toContainEqual(expect.objectContaining({ site: 'process', error: 'TypeError ERR_TEST' }));
  expect(JSON.stringify(lines)).not.toContain('secret-in');
});
