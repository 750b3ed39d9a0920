import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, test } from 'vitest';
import { type Answer, send } from '../support/client.ts';
import { makeDelivery } from '../support/deliveries.ts';
import { useApp } from '../support/fixtures.ts';
import { type Sections, startGate, type TestGate, until } from '../support/gate.ts';
import { makeEntry, toBasic } from '../support/users.ts';

const app = useApp();
let gate: TestGate;
const ENTRIES = [makeEntry('Aladdin', 'open sesame'), makeEntry('test', '123£'), makeEntry('colon', 'p:q'), makeEntry('', '')];

afterEach(() => gate.stop());

const start = async (basic: Sections = {}, more: readonly Sections[] = [], users = ENTRIES.join('\n')): Promise<void> => {
  const route = {
    name: 'admin-ui',
    match: { pathPrefix: '/admin' },
    upstream: `http://127.0.0.1:${app.port}`,
    basic: { realm: 'admin', users: { file: 'users' }, requireTls: false, ...basic },
  };
  gate = await startGate({ routes: [route, ...more] }, undefined, { users });
};
const ask = (headers: Record<string, string> | readonly string[] = {}, path = '/admin', method = 'GET'): Promise<Answer> =>
  send(gate.port, { method, path, headers });
/** What of an answer may not differ between two refusals. */
const toBytes = ({ status, rawHeaders, text }: Answer): unknown => [
  status,
  rawHeaders.filter((_, i) => rawHeaders[i - (i % 2)] !== 'Date'),
  text.replace(/[0-9a-f-]{36}/, ''),
];

describe('a user', () => {
  test('is allowed with the correct password, and the app gets the name but not the password', async () => {
    await start();
    const answer = await ask(toBasic('Aladdin', 'open sesame'), '/admin/x?y=1');
    expect([answer.status, answer.text]).toEqual([200, 'handled']);
    expect(app.received[0]?.url).toBe('/admin/x?y=1');
    expect(app.received[0]?.headers).toMatchObject({ 'sidegate-user': 'Aladdin', 'x-forwarded-user': 'Aladdin' });
    expect(app.received[0]?.headers.authorization).toBeUndefined();
    expect(gate.log().at(-1)).toMatchObject({ user: 'Aladdin', route: 'admin-ui', status: 200 });
  });

  test.each([
    ['test', '123£'],
    ['colon', 'p:q'],
    ['', ''],
  ])('%j may have the password %j', async (user, password) => {
    await start();
    expect((await ask(toBasic(user, password))).status).toBe(200);
  });

  test('needs one hash, and then none until the password changes', async () => {
    await start();
    for (let i = 0; i < 5; i++) expect((await ask(toBasic('Aladdin', 'open sesame'))).status).toBe(200);
    expect(await gate.metric('sidegate_password_checks_total{outcome="miss"}')).toBe(1);
    expect(await gate.metric('sidegate_password_checks_total{outcome="hit"}')).toBe(4);
  });

  test('with ten concurrent requests needs one hash', async () => {
    await start();
    const answers = await Promise.all(Array.from({ length: 10 }, () => ask(toBasic('Aladdin', 'open sesame'))));
    expect(answers.map(({ status }) => status)).toEqual(Array(10).fill(200));
    expect(await gate.metric('sidegate_password_checks_total{outcome="miss"}')).toBe(1);
  });

  test('with a non-ASCII name is percent-encoded for the app', async () => {
    await start({}, [], makeEntry('Amélie 100%', 'x'));
    expect((await ask(toBasic('Ame\u0301lie 100%', 'x'))).status).toBe(200);
    expect(app.received[0]?.headers['sidegate-user']).toBe('Am%C3%A9lie%20100%25');
  });

  test('is not forwarded, or the password is, if the route says so', async () => {
    await start({ forwardUser: false, forwardAuthorization: true });
    await ask({
      ...toBasic('Aladdin', 'open sesame'),
      'X-Forwarded-User': 'evil',
      'Sidegate-User': 'evil',
      Sidegate_User: 'evil',
    });
    const headers = app.received[0]?.headers ?? {};
    expect(headers.authorization).toBe(toBasic('Aladdin', 'open sesame').Authorization);
    expect(JSON.stringify(headers)).not.toContain('evil');
    expect(headers['sidegate-user']).toBeUndefined();
  });
});

describe('no request is allowed', () => {
  test('without the correct password; the response is the same for every cause', async () => {
    await start();
    const answers = await Promise.all([
      ask(),
      ask(toBasic('Aladdin', 'wrong')),
      ask(toBasic('nobody', 'open sesame')),
      ask(toBasic('aladdin', 'open sesame')),
      ask({ Authorization: 'Bearer abc' }),
      ask({ Authorization: 'Basic !!!' }),
      ask({ Authorization: `Basic ${Buffer.from('u:p\0').toString('base64')}` }),
      ask(toBasic('Aladdin', `open sesame${'x'.repeat(100)}`)),
    ]);
    const first = answers[0] as Answer;
    expect(first.status).toBe(401);
    expect(first.headers['www-authenticate']).toBe('Basic realm="admin", charset="UTF-8"');
    expect(first.headers['cache-control']).toBe('no-store');
    for (const answer of answers) expect(toBytes(answer)).toEqual(toBytes(first));
    expect(app.received).toHaveLength(0);
  });

  test('and HEAD gets a response without a body', async () => {
    await start();
    const answer = await ask({}, '/admin', 'HEAD');
    expect([answer.status, answer.body.length]).toEqual([401, 0]);
    expect(answer.headers['www-authenticate']).toContain('Basic');
  });

  test('and two Authorization lines are rejected with 400, in either order', async () => {
    await start();
    const good = toBasic('Aladdin', 'open sesame').Authorization;
    const bad = toBasic('Aladdin', 'wrong').Authorization;
    for (const [one, two] of [
      [good, bad],
      [bad, good],
      [good, good],
    ] as const) {
      const answer = await ask(['Host', 'x', 'Authorization', one, 'Authorization', two]);
      expect([answer.status, answer.code]).toEqual([400, 'malformed_request']);
    }
  });

  test('with TRACE, or a method that the route does not allow', async () => {
    await start();
    const answer = await ask(toBasic('Aladdin', 'open sesame'), '/admin', 'TRACE');
    expect([answer.status, answer.headers.allow]).toEqual([405, 'GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS']);
  });

  test('over plain HTTP if TLS is required, before a password is read', async () => {
    gate = await startGate(
      {
        listen: { address: '127.0.0.1:0', trustedProxies: ['10.0.0.0/8'] },
        routes: [
          {
            name: 'a',
            match: { pathPrefix: '/admin' },
            upstream: `http://127.0.0.1:${app.port}`,
            basic: { realm: 'r', users: { file: 'users' } },
          },
        ],
      },
      undefined,
      { users: ENTRIES.join('\n') },
    );
    const answer = await ask({ ...toBasic('Aladdin', 'open sesame'), 'X-Forwarded-Proto': 'https' });
    expect([answer.status, answer.code, answer.headers['www-authenticate']]).toEqual([403, 'tls_required', undefined]);
    expect(await gate.metric('sidegate_password_checks_total{outcome="miss"}')).toBe(0);
  });
});

describe('guessing', () => {
  test('is stopped after the limit, for the client and for the user, with Retry-After', async () => {
    await start({ limit: { failures: 3, per: '1m', by: ['client'], ban: '5m' } });
    for (let i = 0; i < 3; i++) expect((await ask(toBasic('Aladdin', `guess ${i}`))).status).toBe(401);
    const answer = await ask(toBasic('Aladdin', 'guess 4'));
    expect([answer.status, answer.code]).toEqual([429, 'too_many_attempts']);
    expect(Number(answer.headers['retry-after'])).toBeGreaterThan(290);
    expect((await ask(toBasic('Aladdin', 'open sesame'))).status).toBe(429);
    expect(await gate.metric('sidegate_password_checks_total{outcome="miss"}')).toBe(3);
  });

  test('does not ban clients that logged in before', async () => {
    await start({ limit: { failures: 2, by: ['user'] } });
    expect((await ask(toBasic('Aladdin', 'open sesame'))).status).toBe(200);
    for (let i = 0; i < 3; i++) await ask(toBasic('Aladdin', `guess ${i}`));
    expect((await ask(toBasic('Aladdin', 'guess'))).status).toBe(429);
    expect((await ask(toBasic('Aladdin', 'open sesame'))).status).toBe(200);
    expect((await ask(toBasic('test', '123£'))).status).toBe(200);
  });

  test('counts the same wrong password in many requests of a page once', async () => {
    await start({ limit: { failures: 2, by: ['client'] } });
    const answers = await Promise.all(Array.from({ length: 10 }, () => ask(toBasic('Aladdin', 'saved and wrong'))));
    expect(answers.map(({ status }) => status)).toEqual(Array(10).fill(401));
    expect((await ask(toBasic('Aladdin', 'guess'))).status).toBe(401);
    expect((await ask(toBasic('Aladdin', 'guess'))).status).toBe(429);
  });

  test('does not count successful logins', async () => {
    await start({ limit: { failures: 2 }, cache: { ttl: '0s' } });
    for (let i = 0; i < 6; i++) expect((await ask(toBasic('Aladdin', 'open sesame'))).status).toBe(200);
  });
});

describe('users that change', () => {
  const write = (text: string): void => writeFileSync(join(gate.folder, 'users'), text);
  const events = (msg: string): number => gate.log().filter((line) => line['msg'] === msg).length;

  test('apply at once: a removed user is rejected, even with a cached login', async () => {
    await start();
    expect((await ask(toBasic('Aladdin', 'open sesame'))).status).toBe(200);
    write(makeEntry('test', '123£'));
    await until(() => events('users_reloaded') === 1);
    expect((await ask(toBasic('Aladdin', 'open sesame'))).status).toBe(401);
    write(makeEntry('Aladdin', 'new'));
    await until(() => events('users_reloaded') === 2);
    expect((await ask(toBasic('Aladdin', 'new'))).status).toBe(200);
  });

  test('in a file with a broken line are applied except for that line, with a log line', async () => {
    await start();
    write(`${makeEntry('Aladdin', 'new')}\nbroken line\n`);
    await until(() => events('users_reloaded') === 1);
    expect(gate.logText()).toContain('users:2: the line has no colon');
    expect((await ask(toBasic('Aladdin', 'open sesame'))).status).toBe(401);
    expect((await ask(toBasic('Aladdin', 'new'))).status).toBe(200);
    expect(await gate.metric('sidegate_users_last_reload_successful')).toBe(0);
    write('');
    await until(() => events('users_reloaded') === 2);
    expect(gate.logText()).toContain('contains no users');
    expect((await ask(toBasic('Aladdin', 'new'))).status).toBe(503);
  });
});

describe('routes', () => {
  test('of one realm share its users; an open one is declared', async () => {
    const upstream = `http://127.0.0.1:${app.port}`;
    await start({}, [
      { name: 'second', match: { pathPrefix: '/second' }, upstream, basic: { realm: 'admin', requireTls: false } },
      { name: 'health', match: { path: '/health' }, upstream, allow: 'anyone' },
    ]);
    expect((await ask(toBasic('Aladdin', 'open sesame'), '/second')).status).toBe(200);
    expect((await ask({}, '/second')).status).toBe(401);
    expect((await ask({ 'Sidegate-User': 'evil' }, '/health')).status).toBe(200);
    expect(app.received.at(-1)?.headers['sidegate-user']).toBeUndefined();
  });

  test.each([
    ['kova\u010d', 'kova%C4%8D'],
    ['x\u010d\u010aSidegate-User admin', 'x%C4%8D%C4%8ASidegate-User%20admin'],
  ])('without a signature forward the name of the user %s so that no other header arises', async (user, text) => {
    gate = await startGate(
      {
        routes: [
          {
            name: 'unsigned',
            match: { path: '/hooks/billing' },
            upstream: `http://127.0.0.1:${app.port}`,
            basic: { realm: 'r', users: { file: 'users' }, requireTls: false },
            webhook: { scheme: 'unsigned', dedup: 'off' },
          },
        ],
      },
      undefined,
      { users: makeEntry(user, 'secret') },
    );
    const delivery = makeDelivery();
    const headers = { ...delivery.headers, ...toBasic(user, 'secret') };
    expect((await send(gate.port, { ...delivery, headers })).status).toBe(200);
    const received = app.received.at(-1)?.headers ?? {};
    expect([received['sidegate-key'], received['sidegate-user']]).toEqual([text, text]);
  });

  test('with basic and webhook require both', async () => {
    gate = await startGate(
      {
        routes: [
          {
            name: 'both',
            match: { path: '/hooks/billing' },
            upstream: `http://127.0.0.1:${app.port}`,
            basic: { realm: 'r', users: { file: 'users' }, requireTls: false },
            webhook: { keys: [{ name: 'k', secret: { file: 'secret' } }] },
          },
        ],
      },
      undefined,
      { users: ENTRIES.join('\n') },
    );
    const delivery = makeDelivery();
    const without = await send(gate.port, delivery);
    expect([without.status, without.code]).toEqual([401, 'credentials_required']);
    const challenges = without.rawHeaders.filter((_, i) => without.rawHeaders[i - 1] === 'WWW-Authenticate');
    expect(challenges).toEqual(['Basic realm="r", charset="UTF-8"', 'Webhook-Signature realm="both"']);
    const forged = await send(gate.port, {
      ...delivery,
      headers: { ...delivery.headers, ...toBasic('Aladdin', 'open sesame'), 'Webhook-Signature': 'v1,AAAA' },
    });
    expect(forged.code).toBe('malformed_signature');
    const both = await send(gate.port, { ...delivery, headers: { ...delivery.headers, ...toBasic('Aladdin', 'open sesame') } });
    expect(both.status).toBe(200);
    expect(app.received).toHaveLength(1);
  });
});
