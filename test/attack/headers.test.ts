import { describe, expect, test } from 'vitest';
import { send } from '../support/client.ts';
import { useApp, useGate } from '../support/fixtures.ts';
import type { Sections, TestGate } from '../support/gate.ts';
import { ROUTE_KIND_NAMES, ROUTE_KINDS, startGateWithUser, toKindRoute } from './route-kinds.ts';

const app = useApp();

/** What a CGI-like framework would find under `name`. */
function seenByApp(name: string): string[] {
  const raw = app.received[0]?.rawHeaders ?? [];
  return raw.filter((_, i) => i % 2 === 1 && raw[i - 1]?.toLowerCase().replaceAll('_', '-') === name);
}

const OWN = ['sidegate-route', 'sidegate-key', 'sidegate-request-id', 'sidegate-user', 'sidegate-anything'];
const CLAIMS = [
  'x-forwarded-for',
  'x-forwarded-proto',
  'x-forwarded-host',
  'x-forwarded-port',
  'x-forwarded-prefix',
  'x-forwarded-user',
  'x-forwarded-uri',
  'x-forwarded-ssl',
  'x-forwarded-client-cert',
  'forwarded',
  'x-real-ip',
  'true-client-ip',
  'cf-connecting-ip',
  'x-client-ip',
  'x-original-url',
  'x-rewrite-url',
  'x-envoy-external-address',
];

/** Who the user is, as proxies, meshes and clouds tell an app. */
const IDENTITIES = [
  'remote-user',
  'x-remote-user',
  'x-remote-extra-scopes',
  'x-auth-request-user',
  'x-forwarded-user',
  'x-forwarded-client-cert',
  'cf-access-authenticated-user-email',
  'impersonate-user',
  'tailscale-user-login',
  'x-pomerium-claim-email',
  'x-vouch-user',
  'x-authentik-username',
  'x-userinfo',
  'oidc-claim-sub',
  'x-amzn-oidc-identity',
  'x-ms-client-principal',
];
/** What replaces the path, the method or the host that were checked, or steers the app. */
const OVERRIDES = [
  ...['proxy', 'x-original-url', 'x-rewrite-url', 'x-middleware-subrequest', 'x-accel-mapping', 'x-forwarded-path'],
  ...['script-name', 'path-info', 'daphne-root-path', 'x-vhm-root'],
];

function spellings(name: string): string[] {
  const title = name.replace(/\b[a-z]/g, (letter) => letter.toUpperCase());
  return [
    ...new Set([name, name.toUpperCase(), title, name.replaceAll('-', '_'), title.replaceAll('-', '_'), name.replace('-', '_')]),
  ];
}

describe.each(ROUTE_KIND_NAMES)('behind a kind with %s', (name) => {
  const kind = ROUTE_KINDS[name];
  const start = (listen: Sections = {}): Promise<TestGate> =>
    startGateWithUser({ listen: { address: '127.0.0.1:0', ...listen }, routes: [toKindRoute(kind, app.port)] });
  const gate = useGate(() => start());
  const behindProxy = useGate(() => start({ trustedProxies: ['127.0.0.0/8', '10.0.0.0/8'] }));
  const behindIdentityProxy = useGate(() => start({ trustedIdentityProxies: ['127.0.0.0/8'] }));

  const deliver = async (to: TestGate, extra: readonly string[]): Promise<number> => {
    const body = Buffer.from('{"a":1}');
    const raw = ['Host', 'app.example', ...kind.credentials(body), 'Content-Length', String(body.length), ...extra];
    return (await send(to.port, { headers: raw, body })).status;
  };

  describe('a forged header', () => {
    test.each(OWN.flatMap(spellings))('never reaches the app: %s', async (name) => {
      expect(await deliver(gate, [name, 'evil'])).toBe(200);
      expect(seenByApp(name.toLowerCase().replaceAll('_', '-'))).not.toContain('evil');
    });

    test.each(CLAIMS.flatMap(spellings))('never reaches the app from an untrusted client: %s', async (name) => {
      expect(await deliver(gate, [name, 'evil'])).toBe(200);
      expect(seenByApp(name.toLowerCase().replaceAll('_', '-'))).not.toContain('evil');
    });

    test.each(OWN.flatMap(spellings))('never reaches the app, even from a trusted proxy: %s', async (name) => {
      expect(await deliver(behindProxy, [name, 'evil'])).toBe(200);
      expect(seenByApp(name.toLowerCase().replaceAll('_', '-'))).not.toContain('evil');
    });

    test.each(IDENTITIES.flatMap(spellings))(
      'never reaches the app through a proxy that is trusted for addresses: %s',
      async (name) => {
        expect(await deliver(behindProxy, [name, 'evil'])).toBe(200);
        expect(seenByApp(name.toLowerCase().replaceAll('_', '-'))).not.toContain('evil');
      },
    );

    test.each(OVERRIDES.flatMap(spellings))(
      'never reaches the app, even from a proxy that is trusted for identities: %s',
      async (name) => {
        expect(await deliver(behindIdentityProxy, [name, 'evil'])).toBe(200);
        expect(seenByApp(name.toLowerCase().replaceAll('_', '-'))).not.toContain('evil');
      },
    );

    // Elsewhere nobody relies on them.
    if (name === 'webhook')
      test.each(['Webhook_Id', 'WEBHOOK_TIMESTAMP', 'Webhook_Signature', 'webhook-ID_'.replace('_', '')])(
        'never becomes a second webhook header for the app: %s',
        async (name) => {
          const status = await deliver(gate, [name, 'evil']);
          expect(seenByApp(name.toLowerCase().replaceAll('_', '-'))).not.toContain('evil');
          expect([200, 401]).toContain(status);
        },
      );
  });

  describe('a Connection option', () => {
    test.each([
      'Sidegate-Route',
      'X-Forwarded-For',
      'Webhook-Id',
      'webhook_signature',
      'Host',
      'Content-Length',
      'Content-Type',
      'Authorization',
      'Via',
      'not a token',
    ])('that names %s is rejected with 400', async (token) => {
      expect(await deliver(gate, ['Connection', `close, ${token}`])).toBe(400);
      expect(app.received).toHaveLength(0);
    });

    test('removes the field it names, and itself', async () => {
      expect(await deliver(gate, ['Connection', 'X-Hop', 'X-Hop', '1', 'X-Stay', '2'])).toBe(200);
      expect(seenByApp('x-hop')).toEqual([]);
      expect(seenByApp('x-stay')).toEqual(['2']);
      expect(seenByApp('connection')).toEqual(['keep-alive']);
    });

    test('with repeated and unusual tokens removes no field that the gate sets', async () => {
      expect(await deliver(gate, ['Connection', 'Connection, connection, keep-alive,,', 'Connection', 'te'])).toBe(200);
      expect(seenByApp('sidegate-route')).toEqual(['billing']);
    });
  });

  test.each(['Keep-Alive', 'Proxy-Connection', 'Proxy-Authorization', 'TE', 'Upgrade'])(
    'does not pass the hop-by-hop field %s on',
    async (name) => {
      expect(await deliver(gate, [name, 'x'])).toBe(200);
      expect(seenByApp(name.toLowerCase())).toEqual([]);
    },
  );

  describe('who the client is', () => {
    test('is the peer if it is not trusted, whatever headers it sends', async () => {
      await deliver(gate, ['X-Forwarded-For', '6.6.6.6', 'X-Forwarded-Proto', 'https', 'X-Forwarded-Host', 'evil']);
      expect([seenByApp('x-forwarded-for'), seenByApp('x-forwarded-proto'), seenByApp('x-forwarded-host')]).toEqual([
        ['127.0.0.1'],
        ['http'],
        ['app.example'],
      ]);
    });

    test('is taken from trusted proxies, from the nearest outwards', async () => {
      await deliver(behindProxy, [
        'X-Forwarded-For',
        '6.6.6.6, 203.0.113.9',
        'X-Forwarded-For',
        '10.1.2.3',
        'X-Forwarded-Proto',
        'https',
        'X-Forwarded-Host',
        'public.example',
      ]);
      expect(seenByApp('x-forwarded-for')).toEqual(['6.6.6.6, 203.0.113.9, 10.1.2.3, 127.0.0.1']);
      expect([seenByApp('x-forwarded-proto'), seenByApp('x-forwarded-host')]).toEqual([['https'], ['public.example']]);
      expect(behindProxy.log().at(-1)).toMatchObject({ client: '203.0.113.9' });
    });

    test('is found at the far end of a chain of 5,000 trusted hops', async () => {
      const big = await startGateWithUser({
        listen: { address: '127.0.0.1:0', trustedProxies: ['127.0.0.0/8', '10.0.0.0/8'] },
        limits: { maxHeaderBytes: '64Ki' },
        routes: [toKindRoute(kind, app.port)],
      });
      const hops = Array.from({ length: 5_000 }, () => '10.0.0.1').join(',');
      expect(await deliver(big, ['X-Forwarded-For', `203.0.113.9,${hops}`])).toBe(200);
      expect(big.log().at(-1)).toMatchObject({ client: '203.0.113.9' });
      await big.stop();
    });
  });

  test('forwards Host, repeated fields and their order as they came', async () => {
    await deliver(gate, ['X-Multi', 'a', 'X-Multi', 'b', 'Cookie', 'c=1']);
    expect(seenByApp('host')).toEqual(['app.example']);
    expect(seenByApp('x-multi')).toEqual(['a', 'b']);
  });
});
