import { afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { type Answer, send } from '../support/client.ts';
import { useApp } from '../support/fixtures.ts';
import { startGate, type TestGate } from '../support/gate.ts';
import { makeEntry } from '../support/users.ts';
import { ROUTE_KINDS, toKindRoute } from './route-kinds.ts';

const NAMES = [
  'with space',
  'trailing ',
  'quo"te',
  'com,ma',
  'admin, evil',
  'semi;colon=1',
  'back\\slash',
  'per%cent',
  'x%0d%0aX-Evil 1',
  '%41dmin',
  'é',
  '日本語',
  '🦊',
  'a\u2028line',
  '\u202egnirts',
  '\u00adsoft',
  '<script>',
  "o'brien",
  '{"json"=1}',
  '__proto__',
  'constructor',
];

const app = useApp();
let gate: TestGate;
let users: string;

beforeAll(async () => {
  users = NAMES.map((name) => makeEntry(name.normalize('NFC'), 'x')).join('\n');
});
beforeEach(async () => {
  gate = await startGate({ routes: [toKindRoute(ROUTE_KINDS.basic, app.port, { pathPrefix: '/' })] }, undefined, { users });
});
afterEach(() => gate.stop());

const sign = (pair: string | Buffer): { Authorization: string } => ({
  Authorization: `Basic ${Buffer.from(pair).toString('base64')}`,
});
const ask = (pair: string | Buffer): Promise<Answer> =>
  send(gate.port, { method: 'GET', path: '/', headers: { ...sign(pair), 'Sidegate-User': 'evil', 'X-Forwarded-User': 'evil' } });

describe('a user', () => {
  test.each(NAMES)('named %j is one name for the app, which it can decode, and one line in the log', async (name) => {
    expect((await ask(`${name}:x`)).status).toBe(200);
    const raw = app.received[0]?.rawHeaders ?? [];
    for (const field of ['Sidegate-User', 'X-Forwarded-User']) {
      const values = raw.filter((_, i) => i % 2 === 1 && raw[i - 1] === field);
      expect(values).toHaveLength(1);
      expect(values[0]).toMatch(/^[\x21-\x7e]+$/);
      expect(values[0]).not.toMatch(/[",;\\]/);
      expect(decodeURIComponent(values[0] ?? '')).toBe(name);
    }
    const lines = gate.logText().trim().split('\n');
    expect(lines.filter((line) => line.includes('"request"'))).toHaveLength(1);
    expect(JSON.parse(lines.at(-1) ?? '')).toMatchObject({ user: name, status: 200 });
  });
});

describe('a name', () => {
  test.each([
    ['a line end', 'plain\r\nX-Evil: 1:x'],
    ['LF', 'plain\n:x'],
    ['CR', 'plain\r:x'],
    ['NUL', 'plain\0:x'],
    ['TAB', 'plain\t:x'],
    ['DEL', 'plain\x7f:x'],
    ['ESC', 'plain\x1b[2J:x'],
    ['an overlong slash', Buffer.from([0x70, 0xc0, 0xaf, 0x3a, 0x78])],
    ['half a surrogate', Buffer.from([0x70, 0xed, 0xa0, 0x80, 0x3a, 0x78])],
    ['Latin-1', Buffer.from('\xe9:x', 'latin1')],
  ])('with %s is rejected with 401, and never reaches a header or the log', async (_, pair) => {
    const answer = await ask(pair);
    expect([answer.status, answer.code]).toEqual([401, 'credentials_required']);
    expect(app.received).toHaveLength(0);
    const [line, ...more] = gate.log().filter(({ msg }) => msg === 'request');
    expect(more).toEqual([]);
    expect(line).toMatchObject({ reason: 'malformed_credentials' });
    expect(JSON.stringify(line)).not.toContain('plain');
  });

  test('that was not verified is not logged: it may be a password in the wrong field', async () => {
    expect((await ask('hunter2-canary:')).status).toBe(401);
    expect(gate.logText()).not.toContain('hunter2-canary');
    expect(await gate.metrics()).not.toContain('hunter2-canary');
  });

  test.each(['Evil', 'e\u0301vil'])('is not case-folded to another one: %j is not evil', async (name) => {
    expect((await ask(`${name}:x`)).status).toBe(401);
  });

  test('is the same in both Unicode normalization forms', async () => {
    expect((await ask('e\u0301:x')).status).toBe(200);
    expect(app.received[0]?.headers['sidegate-user']).toBe('%C3%A9');
  });
});
