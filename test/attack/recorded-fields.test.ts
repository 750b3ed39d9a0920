import { expect, test } from 'vitest';
import { useApp, useAuthority, useGate } from '../support/fixtures.ts';
import { startGate, toRoute, until } from '../support/gate.ts';
import { FLAG, FRAME, openFrames, toBlock, toFrame } from '../support/h2-frames.ts';

const app = useApp();
const authority = useAuthority();
const { cert: certFile, key: keyFile } = authority.issue('local', 'DNS:localhost');
const gate = useGate(() =>
  startGate({ listen: { address: '127.0.0.1:0', tls: { certFile, keyFile } }, routes: [toRoute(app.port)] }),
);

test('rejects a method of 14,000 characters, and logs 32 of them', async () => {
  const client = await openFrames(gate.port, authority.ca);
  const fields = [
    [':method', 'M'.repeat(14_000)],
    [':scheme', 'https'],
    [':authority', 'localhost'],
    [':path', '/hooks/billing'],
  ] as const;
  client.socket.write(toFrame(FRAME.headers, FLAG.endHeaders | FLAG.endStream, 1, toBlock(fields)));
  const line = await until(() => gate.log().find(({ code }) => code === 'malformed_request'));
  client.socket.destroy();
  expect(line).toMatchObject({ method: `${'M'.repeat(32)}…`, reason: 'malformed', detail: 'a method of 14000 bytes' });
  const journal = await (await fetch(`http://127.0.0.1:${gate.adminPort}/journal`)).text();
  expect(journal).toContain(`${'M'.repeat(32)}…`);
  expect(journal.length).toBeLessThan(2_000);
});
