import { createSocket, type Socket } from 'node:dgram';
import { describe, expect, onTestFinished, test } from 'vitest';
import { createResolve } from '../../../../src/http/dial/resolve.ts';

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
    const resolve = createResolve({ asksSystem: false, servers: [server] });
    expect(await resolve('both.example')).toEqual(['8.8.8.8', '8.8.4.4', '2606:4700::1111']);
    expect(questions.toSorted()).toEqual(['both.example A', 'both.example AAAA']);
  });

  test.each([
    ['one family has no record', { a: [[8, 8, 8, 8]] }, ['8.8.8.8']],
    ['only IPv6 exists', { aaaa: [V6] }, ['2606:4700::1111']],
  ])('returns what there is if %s', async (_, records, expected) => {
    const { server } = await startNameServer({ 'a.example': records });
    expect(await createResolve({ asksSystem: false, servers: [server] })('a.example')).toEqual(expected);
  });

  test.each([
    ['the name does not exist', { code: NO_SUCH_NAME }, 'ENOTFOUND'],
    ['the name has no address', {}, 'ENODATA'],
    ['the server fails', { code: SERVER_FAILURE }, 'ESERVFAIL'],
  ])('rejects with a code if %s', async (_, records, code) => {
    const { server } = await startNameServer({ 'a.example': records });
    await expect(createResolve({ asksSystem: false, servers: [server] })('a.example')).rejects.toMatchObject({ code });
  });

  test('asks the system only if private addresses are allowed', async () => {
    const { server } = await startNameServer({});
    expect(await createResolve({ asksSystem: true, servers: [server] })('localhost')).toContain('127.0.0.1');
    await expect(createResolve({ asksSystem: false, servers: [server] })('localhost')).rejects.toThrow();
  });

  test('asks the system for more names than it looks up at once', async () => {
    const { server } = await startNameServer({});
    const resolve = createResolve({ asksSystem: true, servers: [server] });
    // The system answers for addresses without a network.
    const hosts = Array.from({ length: 8 }, (_, index) => `127.0.0.${index + 1}`);
    expect(await Promise.all(hosts.map(resolve))).toEqual(hosts.map((host) => [host]));
  });

  test('does not try search domains', async () => {
    const { server, questions } = await startNameServer({});
    await expect(createResolve({ asksSystem: false, servers: [server] })('billing')).rejects.toThrow();
    expect(new Set(questions.map((question) => question.split(' ')[0]))).toEqual(new Set(['billing']));
  });

  test('resolves other names at once while many wait for a silent server, and asks once for each name', async () => {
    const silent = Array.from({ length: 50 }, (_, index) => `silent-${index}.example`);
    const zone = Object.fromEntries(silent.map((name) => [name, { isSilent: true }]));
    const { server, questions } = await startNameServer({ ...zone, 'fast.example': { a: [[8, 8, 8, 8]] } });
    const resolve = createResolve({ asksSystem: false, servers: [server] });
    const waiting = [...silent, ...silent].map((name) => resolve(name).catch(() => 'timeout'));
    const started = performance.now();
    expect(await resolve('fast.example')).toEqual(['8.8.8.8']);
    expect(performance.now() - started).toBeLessThan(1_000);
    expect(await Promise.race([...waiting, 'still waiting'])).toBe('still waiting');
    expect(new Set(questions).size).toBe(questions.length);
  });
});
