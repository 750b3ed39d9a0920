import { randomBytes } from 'node:crypto';
import { expect, test } from 'vitest';
import { send } from '../support/client.ts';
import { makeDelivery, signV1 } from '../support/deliveries.ts';
import { useApp, useGate } from '../support/fixtures.ts';
import { startGate, toRoute, until } from '../support/gate.ts';
import { makeEntry, toBasic } from '../support/users.ts';

const SIGNING = randomBytes(24).toString('base64');
const ROTATED = randomBytes(24).toString('base64');
const IDENTITY = randomBytes(32).toString('base64');
const TOKEN = randomBytes(24).toString('hex');
const PASSWORD = `pass-${randomBytes(12).toString('hex')}`;
const GUESS = `guess-${randomBytes(12).toString('hex')}`;
const QUERY = `query-${randomBytes(12).toString('hex')}`;
/** Each secret as it is written, decoded, and in the encodings that a careless message would show. */
const CANARIES = [SIGNING, ROTATED, IDENTITY, TOKEN, PASSWORD, GUESS, QUERY].flatMap((secret) => {
  const bytes = Buffer.from(secret, 'base64');
  const texts = [secret, encodeURIComponent(secret), Buffer.from(secret).toString('base64'), Buffer.from(secret).toString('hex')];
  return [...texts, bytes.toString('hex'), bytes.toString('base64url'), JSON.stringify([...bytes]).slice(1, -1)];
});
const CREDENTIALS = [toBasic('alice', PASSWORD), toBasic('alice', GUESS)].map(({ Authorization }) =>
  Authorization.slice('Basic '.length),
);

const app = useApp();

const gate = useGate(() => {
  const upstream = `http://127.0.0.1:${app.port}`;
  return startGate(
    {
      admin: { address: '127.0.0.1:0', token: { secret: { file: 'token' } } },
      identity: { audience: 'app', key: { name: 'shared', secret: { file: 'identity', encoding: 'base64' } } },
      explain: {},
      routes: [
        toRoute(app.port, {
          webhook: {
            keys: [
              { name: 'current', secret: { file: 'signing' } },
              { name: 'next', secret: { file: 'rotated' } },
            ],
          },
        }),
        {
          name: 'users',
          match: { pathPrefix: '/users' },
          upstream,
          basic: { realm: 'r', users: { file: 'users' }, requireTls: false },
        },
        { name: 'gone', match: { path: '/gone' }, upstream: 'http://127.0.0.1:1', allow: 'anyone' },
      ],
    },
    undefined,
    {
      signing: `whsec_${SIGNING}`,
      rotated: `whsec_${ROTATED}`,
      identity: IDENTITY,
      token: TOKEN,
      users: makeEntry('alice', PASSWORD),
    },
  );
});

test('shows no secret, password or query in the log, the metrics, the journal, the keys or any response', async () => {
  const responses: string[] = [];
  const ask = async (options: Parameters<typeof send>[1]): Promise<void> => {
    const { text, rawHeaders } = await send(gate.port, options);
    responses.push(text, ...rawHeaders);
  };
  const good = makeDelivery({ secret: `whsec_${SIGNING}` });
  await ask(good);
  await ask(makeDelivery({ secret: `whsec_${GUESS}` }));
  await ask({ ...good, headers: { ...good.headers, 'Webhook-Signature': signV1(good.id, 'x', good.body, SIGNING) } });
  await ask({ ...makeDelivery({ secret: `whsec_${ROTATED}`, timestamp: 1 }), path: '/hooks/billing' });
  await ask({ method: 'GET', path: `/users/a?token=${QUERY}`, headers: toBasic('alice', PASSWORD) });
  await ask({ method: 'GET', path: `/users/a?token=${QUERY}`, headers: toBasic('alice', GUESS) });
  await ask({ method: 'GET', path: `/users/%?token=${QUERY}`, headers: toBasic(GUESS, GUESS) });
  await ask({ method: 'GET', path: `/gone?token=${QUERY}` });
  await ask({ method: 'GET', path: `/missing?token=${QUERY}`, headers: { Authorization: `Bearer ${GUESS}` } });
  await until(() => gate.logText().includes('signature_explained'));

  const admin = async (path: string, token?: string): Promise<string> => {
    const headers = token === undefined ? {} : { Authorization: `Bearer ${token}` };
    return (await fetch(`http://127.0.0.1:${gate.adminPort}${path}`, { headers })).text();
  };
  const journal = await admin('/journal', TOKEN);
  expect(journal).toContain('"route": "users"');
  const shown = [
    journal,
    ...responses,
    gate.logText(),
    await gate.metrics(),
    ...(await Promise.all(['/keys', '/readyz', '/identity/jwks.json'].map((path) => admin(path, TOKEN)))),
    await admin('/journal', GUESS),
  ].join('\n');
  expect(shown).toContain('signature_mismatch');
  expect([...CANARIES, ...CREDENTIALS].filter((canary) => shown.includes(canary))).toEqual([]);
});
