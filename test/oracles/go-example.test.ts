import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Webhook } from 'standardwebhooks';
import { expect, test } from 'vitest';
import { type Answer, send } from '../support/client.ts';
import { runExample } from '../support/example.ts';

const { status, stdout } = spawnSync('go', ['env', 'GOROOT', 'GOCACHE'], { encoding: 'utf8' });
const [root, cache] = (stdout ?? '').split('\n');

test.skipIf(status !== 0)(
  'the example in Go: its page works; what the library signs is handled once, and nothing else',
  { timeout: 180_000 },
  async () => {
    // The cache contains the compiled standard library.
    const session = await runExample('go', { commands: { go: `GOCACHE='${cache}' exec '${root}/bin/go' "$@"` } });
    const body = '{"type":"invoice.paid"}';
    const webhook = new Webhook(readFileSync(join(session.folder, 'secret'), 'utf8').trim());
    const time = new Date();
    const headers = {
      'Content-Type': 'application/json',
      'Webhook-Id': 'evt_lib',
      'Webhook-Timestamp': String(Math.floor(time.getTime() / 1_000)),
      'Webhook-Signature': webhook.sign('evt_lib', time, body),
    };
    const post = (text: string): Promise<Answer> => send(Number(session.localize('8080')), { body: text, headers });
    expect(await post(body.replace('paid', 'void'))).toMatchObject({ status: 401, code: 'signature_mismatch' });
    expect(await post(body)).toMatchObject({ status: 200, text: 'handled\n' });
    expect(await post(body)).toMatchObject({ status: 200, code: 'duplicate' });
  },
);
