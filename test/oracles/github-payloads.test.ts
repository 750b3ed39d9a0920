/** GitHub's real payloads, signed by GitHub's library, through a real gate to a real app. */
import { sign } from '@octokit/webhooks-methods';
import { expect, test } from 'vitest';
import { send } from '../support/client.ts';
import { useApp, useGate } from '../support/fixtures.ts';
import { startGate, toRoute } from '../support/gate.ts';
import { readGithubExamples } from '../support/oracles/github-examples.ts';

const SECRET = "It's a Secret to Everybody";

const app = useApp();

const gate = useGate(() => {
  const route = toRoute(app.port, { webhook: { scheme: 'github' } });
  return startGate({ routes: [route] }, undefined, { secret: SECRET });
});

async function deliver(body: Buffer, event: string, id: string): Promise<{ status: number; code: unknown }> {
  const headers = {
    'Content-Type': 'application/json',
    'X-GitHub-Event': event,
    'X-GitHub-Delivery': id,
    'X-Hub-Signature-256': await sign(SECRET, body.toString()),
  };
  const { status, code } = await send(gate.port, { path: '/hooks/billing', headers, body });
  return { status, code };
}

test('all 329 payloads reach the app unchanged and once, and no modified one does', async () => {
  const examples = readGithubExamples();
  expect(examples).toHaveLength(329);
  for (const [index, { event, body }] of examples.entries()) {
    app.received.length = 0;
    const isRepeat = examples.slice(0, index).some((earlier) => earlier.body.equals(body));
    const { status } = await deliver(body, event, `d${index}`);
    expect({ event, status }).toEqual({ event, status: isRepeat ? 503 : 200 });
    if (isRepeat) {
      // The collection has some payloads twice. Nothing signed distinguishes another event from a replay.
      expect(app.received).toHaveLength(0);
      continue;
    }
    expect(app.received[0]?.headers['x-github-event']).toBe(event);
    expect(app.received[0]?.body.equals(body)).toBe(true);
    expect(await deliver(body, event, `e${index}`)).toMatchObject({ status: 503, code: 'event_conflict' });
    expect(app.received).toHaveLength(1);
  }
});

test('a payload with other white space than the signed one is rejected', async () => {
  const [{ body, event } = { body: Buffer.alloc(0), event: '' }] = readGithubExamples();
  const headers = {
    'Content-Type': 'application/json',
    'X-GitHub-Event': event,
    'X-GitHub-Delivery': 'changed',
    'X-Hub-Signature-256': await sign(SECRET, body.toString()),
  };
  const pretty = JSON.stringify(JSON.parse(body.toString()), undefined, 2);
  expect(await send(gate.port, { path: '/hooks/billing', headers, body: pretty })).toMatchObject({ code: 'signature_mismatch' });
});
