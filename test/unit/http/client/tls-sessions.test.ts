import { expect, test } from 'vitest';
import { TlsSessions } from '../../../../src/http/client/open-socket.ts';
import { FakeClock } from '../../../support/fake-clock.ts';

const HOUR_MS = 3_600_000;

test('returns the newest session, for at most an hour after the full handshake', () => {
  const clock = new FakeClock();
  const sessions = new TlsSessions(clock);
  const target = {};
  sessions.keep(target, Buffer.from('first'));
  clock.pass(HOUR_MS - 1);
  // A resumed session brings a new ticket, but no new check of the certificate.
  sessions.keep(target, Buffer.from('second'));
  expect(String(sessions.find(target))).toBe('second');
  clock.pass(1);
  expect(sessions.find(target)).toBeUndefined();
  sessions.keep(target, Buffer.from('third'));
  clock.pass(HOUR_MS - 1);
  expect(String(sessions.find(target))).toBe('third');
  sessions.forget(target);
  expect(sessions.find(target)).toBeUndefined();
});

test('keeps a thousand sessions, and drops those that were renewed least recently', () => {
  const sessions = new TlsSessions(new FakeClock());
  const targets = Array.from({ length: 1_001 }, (_, index) => ({ index }));
  const [first = {}, second = {}] = targets;
  for (const target of targets.slice(0, 1_000)) sessions.keep(target, Buffer.from('x'));
  sessions.keep(first, Buffer.from('x'));
  sessions.keep(targets.at(-1) ?? {}, Buffer.from('x'));
  expect(sessions.find(first)).toBeDefined();
  expect(sessions.find(second)).toBeUndefined();
});

test('keeps no session of more than 8 KiB: the size of its ticket is up to the server', () => {
  const sessions = new TlsSessions(new FakeClock());
  const [usual, large] = [{}, {}];
  sessions.keep(usual, Buffer.alloc(8 * 1024));
  sessions.keep(large, Buffer.alloc(8 * 1024 + 1));
  expect(sessions.find(usual)).toBeDefined();
  expect(sessions.find(large)).toBeUndefined();
});
