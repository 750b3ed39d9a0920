import { describe, expect, test } from 'vitest';
import { Events } from '../../../../src/kubernetes/admission/events.ts';
import type { PodEvent } from '../../../../src/kubernetes/admission/reviewer.ts';
import type { RequestOptions } from '../../../../src/kubernetes/client/client.ts';
import { KubeError } from '../../../../src/kubernetes/client/error.ts';
import { createLogger } from '../../../../src/telemetry/log/logger.ts';
import { FakeClock, settle } from '../../../support/fake-clock.ts';

const OWNER = { apiVersion: 'apps/v1', kind: 'ReplicaSet', name: 'web', uid: '1' };

function toPodEvent(over: Partial<PodEvent['request']> = {}, note = 'done'): PodEvent {
  const request = { uid: 'u', namespace: 'shop', name: 'web-…', isDryRun: false, owner: OWNER, ...over };
  return { request, type: 'Normal', reason: 'SidegateInjected', note };
}

function start(answer: () => Promise<unknown> = () => Promise.resolve({})) {
  const clock = new FakeClock();
  const outcomes: string[] = [];
  const sent: { readonly path: string; readonly body: Record<string, unknown> }[] = [];
  const kube = {
    request<T>(_method: string, path: string, { body }: RequestOptions = {}): Promise<T> {
      sent.push({ path, body: body as Record<string, unknown> });
      return answer() as Promise<T>;
    },
  };
  const logger = createLogger({ level: 'error', version: '1', destination: { write: () => undefined } });
  const events = new Events({ kube, clock, logger, instance: 'injector-0', onOutcome: (outcome) => outcomes.push(outcome) });
  return { clock, events, outcomes, sent };
}

describe('an Event', () => {
  test('is on the owner, with the time to the microsecond', async () => {
    const { events, outcomes, sent } = start();
    events.send(toPodEvent());
    await settle();
    expect(outcomes).toEqual(['sent']);
    expect(sent[0]?.path).toBe('/apis/events.k8s.io/v1/namespaces/shop/events');
    expect(sent[0]?.body).toMatchObject({ regarding: { ...OWNER, namespace: 'shop' }, eventTime: '2027-01-15T08:00:00.000000Z' });
  });

  test('is on the pod if it has a name but no owner, and is omitted if it has neither', async () => {
    const { events, outcomes, sent } = start();
    events.send(toPodEvent({ owner: undefined, name: 'web' }));
    events.send(toPodEvent({ owner: undefined }));
    await settle();
    expect(outcomes).toEqual(['dropped', 'sent']);
    expect(sent[0]?.body['regarding']).toEqual({ apiVersion: 'v1', kind: 'Pod', name: 'web', namespace: 'shop' });
  });

  test('is created once in ten minutes', async () => {
    const { clock, events, outcomes } = start();
    for (let i = 0; i < 3; i++) events.send(toPodEvent());
    await settle();
    expect(outcomes).toEqual(['repeated', 'repeated', 'sent']);
    await clock.advance(600_000);
    events.send(toPodEvent());
    await settle();
    expect(outcomes.at(-1)).toBe('sent');
  });

  test('is dropped beyond 25 at once, with one more allowed each second', async () => {
    const { clock, events, outcomes } = start();
    let id = 0;
    const tellMany = async (): Promise<void> => {
      for (let i = 0; i < 5; i++) {
        for (let j = 0; j < 6; j++) events.send(toPodEvent({}, `note ${id++}`));
        await settle();
      }
    };
    await tellMany();
    expect(outcomes.filter((outcome) => outcome === 'sent')).toHaveLength(25);
    await clock.advance(3_000);
    await tellMany();
    expect(outcomes.filter((outcome) => outcome === 'sent')).toHaveLength(28);
  });

  test('that is forbidden is not retried for ten minutes, without other effects', async () => {
    const { clock, events, outcomes, sent } = start(() =>
      Promise.reject(
        new KubeError(
          403,
          'Forbidden',
          'events is forbidden: User "a" cannot create resource "events" in API group "events.k8s.io"',
        ),
      ),
    );
    events.send(toPodEvent());
    await settle();
    events.send(toPodEvent({}, 'other'));
    expect([outcomes, sent.length]).toEqual([['forbidden', 'forbidden'], 1]);
    await clock.advance(600_000);
    events.send(toPodEvent({}, 'another'));
    expect(sent).toHaveLength(2);
  });

  test.each([
    'events "x" is forbidden: exceeded quota: q, requested: count/events=1, used: 1, limited: 1',
    'events "x" is forbidden: unable to create new content in namespace a because it is being terminated',
  ])('that one namespace forbids does not stop those of others: %s', async (message) => {
    const { events, outcomes, sent } = start(() => Promise.reject(new KubeError(403, 'Forbidden', message)));
    events.send(toPodEvent({ namespace: 'full' }));
    await settle();
    events.send(toPodEvent());
    await settle();
    expect([outcomes, sent.length]).toEqual([['failed', 'failed'], 2]);
  });

  test('that fails is counted', async () => {
    const { events, outcomes } = start(() => Promise.reject(new KubeError(0, 'Timeout', 'late')));
    events.send(toPodEvent());
    await settle();
    expect(outcomes).toEqual(['failed']);
  });

  test('for a namespace that cannot exist is not sent, and counted as failed', async () => {
    const { events, outcomes, sent } = start();
    events.send(toPodEvent({ namespace: '..' }));
    await settle();
    expect([outcomes, sent]).toEqual([['failed'], []]);
  });

  test('has a note of bounded length, on one line', async () => {
    const { events, sent } = start();
    events.send(toPodEvent({}, `a\nb${'ü'.repeat(5_000)}`));
    await settle();
    const note = String(sent[0]?.body['note']);
    expect([note.startsWith('a b'), [...note].length]).toEqual([true, 900]);
  });
});
