import { connect } from 'node:net';
import { expect, test } from 'vitest';
import { lookUp, lookUpForConnect } from '../../../src/http/dial/resolve.ts';
import { useEcho } from '../../support/fixtures.ts';
import { countLookups } from '../../support/lookups.ts';

const echo = useEcho();

test('looks up a name at most once at a time', async () => {
  const lookups = countLookups();
  const outcomes = await Promise.allSettled(Array.from({ length: 20 }, () => lookUp('a.invalid')));
  expect(new Set(outcomes.map(({ status }) => status))).toEqual(new Set(['rejected']));
  expect(lookups.most).toBe(1);
  // An outcome is not kept.
  const before = lookups.total;
  await expect(lookUp('a.invalid')).rejects.toThrow();
  expect(lookups.total).toBe(before + 1);
});

test('finds a name of the hosts file without a thread', async () => {
  const lookups = countLookups();
  expect(await lookUp('localhost')).toContainEqual({ address: '127.0.0.1', family: 4 });
  expect(lookups.total).toBe(0);
});

test.each([
  ['with both families', undefined],
  ['with one family', 4],
])('connects to a name %s', async (_, family) => {
  const socket = connect({ port: echo.port, host: 'localhost', lookup: lookUpForConnect, ...(family && { family }) });
  await new Promise<void>((resolve, reject) => socket.once('connect', resolve).once('error', reject));
  socket.destroy();
});

test('reports that a name does not exist', async () => {
  const socket = connect({ port: 1, host: 'a.invalid', lookup: lookUpForConnect });
  const error = await new Promise<NodeJS.ErrnoException>((resolve) => socket.once('error', resolve));
  expect(error.code).toMatch(/^(?:ENOTFOUND|EAI_AGAIN)$/);
});
