import { createSocket, type Socket } from 'node:dgram';
import { rmSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import {
  createResolve,
  HostsFile,
  LOCAL_NAMES,
  type LocalNames,
  lookUp,
  lookUpForConnect,
} from '../../../../src/http/dial/resolve.ts';
import { makeFolder, useEcho } from '../../../support/fixtures.ts';
import { countLookups } from '../../../support/lookups.ts';

const [A, AAAA] = [1, 28];
const [NO_ERROR, SERVER_FAILURE, NO_SUCH_NAME] = [0, 2, 3];
const HEADER_BYTES = 12;

/** The answers by name and type; `silent` names get none. */
type Zone = Readonly<
  Record<
    string,
    { readonly a?: readonly number[][]; readonly aaaa?: readonly number[][]; readonly code?: number; readonly isSilent?: boolean }
  >
>;

/** A name server on loopback. Returns its address, and the questions that it got. */
async function startNameServer(zone: Zone): Promise<{ server: string; questions: string[] }> {
  const socket: Socket = createSocket('udp4');
  const questions: string[] = [];
  socket.on('message', (query, { port, address }) => {
    const labels: string[] = [];
    let at = HEADER_BYTES;
    while (query[at] !== 0) {
      const length = query[at] ?? 0;
      labels.push(query.toString('latin1', at + 1, at + 1 + length));
      at += length + 1;
    }
    const name = labels.join('.');
    const type = query.readUInt16BE(at + 1);
    questions.push(`${name} ${type === A ? 'A' : 'AAAA'}`);
    const found = zone[name] ?? { code: NO_SUCH_NAME };
    if (found.isSilent === true) return;
    const records = (type === A ? found.a : type === AAAA ? found.aaaa : []) ?? [];
    const header = Buffer.from(query.subarray(0, HEADER_BYTES));
    header.writeUInt16BE(0x8180 | (found.code ?? NO_ERROR), 2);
    header.writeUInt16BE(records.length, 6);
    header.writeUInt32BE(0, 8);
    const answers = records.map((bytes) =>
      Buffer.from([0xc0, HEADER_BYTES, 0, type, 0, 1, 0, 0, 0, 60, 0, bytes.length, ...bytes]),
    );
    socket.send(Buffer.concat([header, query.subarray(HEADER_BYTES, at + 5), ...answers]), port, address);
  });
  await new Promise<void>((resolve) => socket.bind(0, '127.0.0.1', resolve));
  onTestFinished(() => {
    socket.close();
  });
  return { server: `127.0.0.1:${socket.address().port}`, questions };
}

/** Local names of their own. `path`: the hosts file. */
function makeLocalNames(hosts: string, search: string): LocalNames & { readonly path: string } {
  const folder = makeFolder();
  const [path, searchFile] = [join(folder, 'hosts'), join(folder, 'resolv.conf')];
  writeFileSync(path, hosts);
  writeFileSync(searchFile, search);
  return { hosts: new HostsFile(path), searchFile, path };
}

const V6 = [0x26, 0x06, 0x47, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x11, 0x11];

describe('createResolve', () => {
  test('returns the addresses of both families, IPv4 first', async () => {
    const { server, questions } = await startNameServer({
      'both.example': {
        a: [
          [8, 8, 8, 8],
          [8, 8, 4, 4],
        ],
        aaaa: [V6],
      },
    });
    const resolve = createResolve({ servers: [server] });
    expect(await resolve('both.example')).toEqual(['8.8.8.8', '8.8.4.4', '2606:4700::1111']);
    expect(questions.toSorted()).toEqual(['both.example A', 'both.example AAAA']);
  });

  test.each([
    ['one family has no record', { a: [[8, 8, 8, 8]] }, ['8.8.8.8']],
    ['only IPv6 exists', { aaaa: [V6] }, ['2606:4700::1111']],
  ])('returns what there is if %s', async (_, records, expected) => {
    const { server } = await startNameServer({ 'a.example': records });
    expect(await createResolve({ servers: [server] })('a.example')).toEqual(expected);
  });

  test.each([
    ['the name does not exist', { code: NO_SUCH_NAME }, 'ENOTFOUND'],
    ['the name has no address', {}, 'ENODATA'],
    ['the server fails', { code: SERVER_FAILURE }, 'ESERVFAIL'],
  ])('rejects with a code if %s', async (_, records, code) => {
    const { server } = await startNameServer({ 'a.example': records });
    await expect(createResolve({ servers: [server] })('a.example')).rejects.toMatchObject({ code });
  });

  test('finds names of the hosts file and in search domains only if it may', async () => {
    const { server } = await startNameServer({ 'billing.prod.svc.test': { a: [[10, 0, 0, 7]] } });
    const local = makeLocalNames(
      '127.0.0.1\tlocalhost\n::1 localhost ip6-loopback # local\n#10.0.0.1 old\n10.0.0.9 Legacy.example # db\nbad line\n',
      'search ignored.test\noptions ndots:5\nsearch svc.test prod.svc.test\n',
    );
    const resolve = createResolve({ local, servers: [server] });
    expect(await resolve('localhost')).toEqual(['127.0.0.1', '::1']);
    expect(await resolve('LEGACY.example')).toEqual(['10.0.0.9']);
    expect(await resolve('billing')).toEqual(['10.0.0.7']);
    for (const name of ['old', 'db', 'line', 'billing.'])
      await expect(resolve(name), name).rejects.toMatchObject({ code: 'ENOTFOUND' });
    const strict = createResolve({ servers: [server] });
    for (const name of ['localhost', 'legacy.example', 'billing']) await expect(strict(name), name).rejects.toThrow();
  });

  test('looks for names with fewer dots than ndots in the search domains first, as the system does', async () => {
    const service = { a: [[10, 0, 0, 7]] };
    const { server } = await startNameServer({
      'app.dev': { a: [[93, 184, 216, 34]] },
      'app.dev.svc.test': service,
      'redis.svc.test': service,
      redis: { isSilent: true },
    });
    const few = createResolve({ local: makeLocalNames('', 'search svc.test\n'), servers: [server] });
    expect([await few('redis'), await few('app.dev')]).toEqual([['10.0.0.7'], ['93.184.216.34']]);
    const many = createResolve({ local: makeLocalNames('', 'search svc.test\noptions timeout:1 ndots:5\n'), servers: [server] });
    expect(await many('app.dev')).toEqual(['10.0.0.7']);
  });

  test('reads the hosts file again after it has changed, and needs none', async () => {
    const { server } = await startNameServer({});
    const local = makeLocalNames('10.0.0.1 a\n', '');
    const resolve = createResolve({ local, servers: [server] });
    expect(await resolve('a')).toEqual(['10.0.0.1']);
    writeFileSync(local.path, '10.0.0.22 a\n');
    expect(await resolve('a')).toEqual(['10.0.0.22']);
    rmSync(local.path);
    await expect(resolve('a')).rejects.toMatchObject({ code: 'ENOTFOUND' });
  });

  test('asks at most once per search domain, and for no other after a server that does not respond', async () => {
    const domains = Array.from({ length: 9 }, (_, index) => `d${index}.test`);
    const { server, questions } = await startNameServer({ 'lost.d1.test': { isSilent: true } });
    const resolve = createResolve({ local: makeLocalNames('', `search ${domains.join(' ')}\n`), servers: [server] });
    await expect(resolve('nowhere')).rejects.toMatchObject({ code: 'ENOTFOUND' });
    expect(questions).toHaveLength(2 * (1 + 6));
    await expect(resolve('lost')).rejects.toMatchObject({ code: 'ETIMEOUT' });
    expect(questions.filter((question) => question.startsWith('lost.d2'))).toEqual([]);
  }, 20_000);

  test('takes no thread of the process for a name', async () => {
    const { server } = await startNameServer({ 'silent.example': { isSilent: true } });
    const resolve = createResolve({ local: LOCAL_NAMES, servers: [server] });
    const lookups = countLookups();
    await Promise.all(
      ['localhost', 'none.example', 'none', 'silent.example'].map((name) => resolve(name).catch(() => undefined)),
    );
    expect(lookups.total).toBe(0);
  }, 20_000);

  test('does not try search domains', async () => {
    const { server, questions } = await startNameServer({});
    await expect(createResolve({ servers: [server] })('billing')).rejects.toThrow();
    expect(new Set(questions.map((question) => question.split(' ')[0]))).toEqual(new Set(['billing']));
  });

  test('resolves other names at once while many wait for a silent server, and asks once for each name', async () => {
    const silent = Array.from({ length: 50 }, (_, index) => `silent-${index}.example`);
    const zone = Object.fromEntries(silent.map((name) => [name, { isSilent: true }]));
    const { server, questions } = await startNameServer({ ...zone, 'fast.example': { a: [[8, 8, 8, 8]] } });
    const resolve = createResolve({ servers: [server] });
    const waiting = [...silent, ...silent].map((name) => resolve(name).catch(() => 'timeout'));
    const started = performance.now();
    expect(await resolve('fast.example')).toEqual(['8.8.8.8']);
    expect(performance.now() - started).toBeLessThan(1_000);
    expect(await Promise.race([...waiting, 'still waiting'])).toBe('still waiting');
    expect(new Set(questions).size).toBe(questions.length);
  });
});

describe('the lookup by the system', () => {
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
});
