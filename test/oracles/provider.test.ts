/** Events that an app posts, through either queue, to receivers that verify with the libraries of Standard Webhooks, and to another gate. */
import { afterAll, describe, expect, onTestFinished, test } from 'vitest';
import { SECRET } from '../support/deliveries.ts';
import { useApp } from '../support/fixtures.ts';
import { type Sections, startGate, type TestGate, toRoute, until } from '../support/gate.ts';
import { startGo, startPython } from '../support/oracles/foreign.ts';
import { readGithubExamples } from '../support/oracles/github-examples.ts';
import { toVerifiers } from '../support/oracles/verifiers.ts';
import { postEvent } from '../support/provider/client.ts';
import { type Engine, startQueue } from '../support/queue/engines.ts';

const python = startPython();
const go = startGo();
const app = useApp();
const verifiers = toVerifiers(python, go);
/** Spread over all examples, with text in several scripts and bodies of up to 30 KiB. */
const EXAMPLES = readGithubExamples().filter((_, index) => index % 5 === 0);

afterAll(() => {
  python?.stop();
  go?.stop();
});

async function startSidecar(engine: Engine, url: string): Promise<TestGate> {
  const provider: Sections = {
    address: '127.0.0.1:0',
    egress: { allowHttp: true, allowPrivate: ['127.0.0.0/8'] },
    endpoints: [{ name: 'acme', url, secret: { file: 'secret' } }],
  };
  const gate = await startGate({ provider: { ...provider, queue: await startQueue(engine) } });
  onTestFinished(async () => {
    await gate.stop();
  });
  return gate;
}

/** Posts all examples as events, and returns their IDs. */
async function postExamples({ providerPort }: TestGate): Promise<readonly string[]> {
  const ids: string[] = [];
  for (const { event, body } of EXAMPLES)
    ids.push(await postEvent(providerPort, { type: `github.${event}`, data: JSON.parse(body.toString()) as unknown }));
  return ids;
}

describe.each<Engine>(['SQLite', 'PostgreSQL'])('a sidecar with its queue in %s', (engine) => {
  test('sends deliveries that every library accepts and, with a changed byte, rejects', async () => {
    const gate = await startSidecar(engine, `http://127.0.0.1:${app.port}/hooks`);
    const ids = await postExamples(gate);
    const received = await until(() => app.received.length === ids.length && app.received);
    expect(received.map(({ headers }) => headers['webhook-id']).toSorted()).toEqual(ids.toSorted());
    for (const { name, verify } of verifiers) {
      for (const delivery of received) {
        const changed = { ...delivery, body: Buffer.from(delivery.body.toString().replace('github.', 'Github.')) };
        const id = delivery.headers['webhook-id'];
        expect({ name, id, accepted: await verify(delivery, SECRET), changed: await verify(changed, SECRET) }).toEqual({
          name,
          id,
          accepted: true,
          changed: false,
        });
      }
    }
  });

  test('sends deliveries that a gate forwards to its app, each once', async () => {
    const webhook = { scheme: 'standard-webhooks', keys: [{ name: 'current', secret: { file: 'secret' } }] };
    const receiver = await startGate({ routes: [toRoute(app.port, { match: { path: '/hooks' }, webhook })] });
    onTestFinished(async () => {
      await receiver.stop();
    });
    const gate = await startSidecar(engine, `http://127.0.0.1:${receiver.port}/hooks`);
    const ids = await postExamples(gate);
    const received = await until(() => app.received.length >= ids.length && app.received);
    expect(received.map(({ headers }) => headers['webhook-id']).toSorted()).toEqual(ids.toSorted());
    expect(new Set(received.map(({ headers }) => headers['sidegate-key']))).toEqual(new Set(['current']));
  });
});
