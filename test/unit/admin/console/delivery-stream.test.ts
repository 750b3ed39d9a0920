import { EventEmitter, once } from 'node:events';
import { createServer, get, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, expect, test } from 'vitest';
import { DeliveryStream, MAX_STREAMS } from '../../../../src/admin/console/delivery-stream.ts';
import { toDetailView } from '../../../../src/admin/console/delivery-view.ts';
import type { Row } from '../../../../src/admin/console/recent-deliveries.ts';
import type { DeliveryDetail } from '../../../../src/admin/console/schemas.ts';
import { SharedEntries, type SharedEntry } from '../../../../src/admin/console/shared-entries.ts';
import { Journal } from '../../../../src/telemetry/journal/journal.ts';
import { FakeClock, settle } from '../../../support/fake-clock.ts';
import { makePauseOwner } from '../../../support/pauses.ts';
import { makeRequestLine } from '../../../support/request-line.ts';
import { createSharedStreams } from '../../../support/shared-streams.ts';

const INSTANCE = 'aaaaaaaa';
const CONTEXT = {
  replica: 'b',
  redact: (text: string | null | undefined) => text ?? null,
  secrets: [],
  findRoute: () => undefined,
};
const toId = (i: number): string => `00000000-0000-4000-8000-${String(i).padStart(12, '0')}`;

function toDetail(id: string): DeliveryDetail {
  const journal = new Journal({ size: 1, maxBytes: 10_000 });
  journal.add(1, makeRequestLine({ requestId: id, route: 'shared' }));
  const [entry] = journal.find({ limit: 1 });
  if (entry === undefined) throw new Error('nothing was recorded');
  return toDetailView(entry, CONTEXT, { isCaptured: false, origin: '', bodyDenial: 'other_replica' });
}

/** A response that keeps what is written. */
class FakeResponse extends EventEmitter {
  text = '';
  writableNeedDrain = false;
  /** It takes no more for now. */
  isBlocked = false;
  write(chunk: string): boolean {
    this.text += chunk;
    this.writableNeedDrain = this.isBlocked;
    return !this.isBlocked;
  }
  drain(): void {
    this.writableNeedDrain = false;
    this.emit('drain');
  }
  destroy(): void {
    this.emit('close');
  }
  /** The IDs of requests, names of other events, and gaps, in order. */
  get events(): string[] {
    return [...this.text.matchAll(/^(?:event: (\w+)\n)?data: (.*)$|^(: \S+)/gm)].flatMap(([, name, data = '', comment]) =>
      comment !== undefined ? [] : [name === undefined ? Number(JSON.parse(data).id.slice(-12)).toString() : `${name} ${data}`],
    );
  }
  get lastId(): string | undefined {
    return [...this.text.matchAll(/^id: (.*)$/gm)].at(-1)?.[1];
  }
}

function start() {
  const clock = new FakeClock();
  const journal = new Journal({ size: 1_000, maxBytes: 10_000_000 });
  const { store: shared, state: store } = createSharedStreams(clock);
  const entries = new SharedEntries(INSTANCE, { clock, journal, shared, onShared: () => undefined });
  const stream = new DeliveryStream({
    clock,
    journal,
    shared: entries,
    instance: INSTANCE,
    context: () => CONTEXT,
    onDropped: () => undefined,
  });
  let sequence = 0;
  /** Another replica publishes; the newest first, as replicas do. */
  const publish = (...ids: number[]): void => {
    const found = ids.map((id): SharedEntry => ({ instance: 'bbbbbbbb', sequence: ++sequence, detail: toDetail(toId(id)) }));
    void shared.publish('deliveries', JSON.stringify(found.toReversed()));
  };
  const open = (lastId?: string, isSelected: (row: Row) => boolean = () => true): FakeResponse => {
    const response = new FakeResponse();
    stream.open(response as unknown as ServerResponse, lastId, {
      owner: makePauseOwner(clock),
      isSelected,
      isAuthorized: () => true,
    });
    return response;
  };
  const record = (id: number): void => journal.add(1, makeRequestLine({ requestId: toId(id), route: 'own' }));
  return { clock, journal, store, entries, stream, publish, open, record };
}

describe('the stream with a shared store', () => {
  test('sends requests of this replica and of others, once each, from the connection on', async () => {
    const { clock, publish, open, record } = start();
    publish(1, 2);
    record(3);
    const client = open();
    await settle();
    publish(4, 5);
    record(6);
    await clock.advance(2_000);
    publish(7);
    await clock.advance(2_000);
    expect(client.events).toEqual(['6', '4', '5', '7']);
  });

  test('applies the filters to both', async () => {
    const { clock, publish, open, record } = start();
    const [own, others] = [
      open(undefined, ({ view }) => view.route === 'own'),
      open(undefined, ({ view }) => view.route === 'shared'),
    ];
    await settle();
    publish(1);
    record(2);
    await clock.advance(2_000);
    expect([own.events, others.events]).toEqual([['2'], ['1']]);
  });

  test('continues after Last-Event-ID with both, and reports what is no longer kept', async () => {
    const { clock, publish, open, record } = start();
    const first = open();
    await settle();
    record(1);
    publish(2);
    await clock.advance(2_000);
    const { lastId } = first;
    expect(lastId).toBe(`${INSTANCE}-1-1`);
    first.destroy();
    record(3);
    const other = open();
    await settle();
    publish(4);
    await clock.advance(2_000);
    const again = open(lastId);
    await clock.advance(2_000);
    expect([other.events, again.events]).toEqual([['4'], ['3', '4']]);
    publish(...Array.from({ length: 700 }, (_, i) => 10 + i));
    await clock.advance(2_000);
    expect(again.events.slice(2, 4)).toEqual(['gap {"skipped":600}', '610']);
    for (const wrong of [`${INSTANCE}-999-999`, `${INSTANCE}-0-0`, `${INSTANCE}-0`, 'bbbbbbbb-1-1', `${INSTANCE}-1-1-1`]) {
      const client = open(wrong);
      await clock.advance(2_000);
      client.destroy();
    }
  });

  test('reads from the store only while a client is connected, with one read at a time', async () => {
    const { clock, store, open } = start();
    await clock.advance(10_000);
    expect(store.reads).toBe(0);
    const clients = [open(), open(), open()];
    await clock.advance(10_000);
    const { reads, watches } = store;
    expect(reads).toBeLessThanOrEqual(12);
    expect(watches).toBeLessThanOrEqual(3);
    for (const client of clients) client.destroy();
    await clock.advance(60_000);
    expect([store.reads, store.watches, clock.timers]).toEqual([reads, watches, 0]);
  });

  test('stays open while the store is away, says so, and continues', async () => {
    const { clock, store, publish, open, record } = start();
    const client = open();
    await settle();
    publish(1);
    await clock.advance(2_000);
    store.isAway = true;
    record(2);
    await clock.advance(5_000);
    const late = open();
    await clock.advance(5_000);
    store.isAway = false;
    publish(3);
    await clock.advance(2_000);
    const [down, up] = ['replicas {"isAvailable":false}', 'replicas {"isAvailable":true}'];
    expect(client.events).toEqual(['1', '2', down, '3', up]);
    // The list has what it missed before its first read.
    expect(late.events).toEqual([down, up]);
    publish(4);
    await clock.advance(2_000);
    expect([client.events.at(-1), late.events.at(-1)]).toEqual(['4', '4']);
  });

  test('ignores requests that it published itself', async () => {
    const { clock, entries, open } = start();
    const client = open();
    await settle();
    expect(entries.received).toBe(0);
    await clock.advance(2_000);
    expect(client.events).toEqual([]);
  });
});

test('disconnects a client that reads nothing for 30 s, and no other', async () => {
  const { clock, stream, open, record } = start();
  const clients = Array.from({ length: MAX_STREAMS }, () => open());
  const [deaf, slow] = clients;
  if (deaf === undefined || slow === undefined) throw new Error('no clients');
  deaf.isBlocked = slow.isBlocked = true;
  record(1);
  await clock.advance(20_000);
  slow.drain();
  await clock.advance(9_000);
  expect(stream.isFull).toBe(true);
  await clock.advance(2_000);
  expect(stream.isFull).toBe(false);
  expect(clients.map((client) => client.listenerCount('drain'))).toEqual([0, 1, 0, 0, 0, 0, 0, 0]);
  for (const client of clients) client.destroy();
  expect(clock.timers).toBe(0);
});

test('writes nothing more to a client that has not read the last flush, and tells it afterwards what it missed', async () => {
  const { clock, open, record } = start();
  const [deaf, other] = [open(), open()];
  deaf.isBlocked = true;
  record(1);
  await clock.advance(1_000);
  const { length } = deaf.text;
  for (let id = 2; id < 302; id++) {
    record(id);
    if (id % 50 === 0) await clock.advance(1_000);
  }
  await clock.advance(1_000);
  expect([deaf.text.length, other.events.length]).toEqual([length, 301]);
  deaf.isBlocked = false;
  deaf.drain();
  await clock.advance(1_000);
  expect(deaf.events.slice(0, 3)).toEqual(['1', 'gap {"skipped":200}', '202']);
  expect(deaf.events.at(-1)).toBe('301');
});

test('does not count a client that left before its stream began', async () => {
  const { clock, stream, open } = start();
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const request = get({ port: (server.address() as AddressInfo).port, host: '127.0.0.1' }).on('error', () => undefined);
  const [, response] = (await once(server, 'request')) as [unknown, ServerResponse];
  request.destroy();
  await once(response, 'close');
  const options = { owner: makePauseOwner(clock), isSelected: () => true, isAuthorized: () => true };
  for (let i = 0; i < MAX_STREAMS; i++) stream.open(response, undefined, options);
  expect([stream.isFull, clock.timers]).toEqual([false, 0]);
  expect(open().text).toBe(': open\n\n');
  server.close();
});
