import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { stringify } from 'yaml';
import { checkConfig } from '../../../../src/app/check.ts';
import { parseConfig } from '../../../../src/config/load/load.ts';
import { formatProblem } from '../../../../src/core/problem.ts';
import { FakeClock } from '../../../support/fake-clock.ts';
import { useFolder } from '../../../support/fixtures.ts';

const clock = new FakeClock();
const folder = useFolder();

const KEYS = [{ name: 'current', secret: { env: 'HOME' } }];
const ROUTE = { name: 'a', match: { path: '/a' }, upstream: 'http://127.0.0.1:3000', webhook: { keys: KEYS } };

function toProblems(config: unknown): string {
  return parseConfig('gate.yaml', stringify(config), clock).problems.map(formatProblem).join('\n');
}

describe('an upstream that is not a URL', () => {
  test.each([
    ['localhost:5055', 'http://localhost:5055'],
    ['127.0.0.1:5055', 'http://127.0.0.1:5055'],
    ['[::1]:5055', 'http://[::1]:5055'],
    ['app.default.svc:80/', 'http://app.default.svc:80'],
    [':5055', 'http://127.0.0.1:5055'],
    ['app', 'http://app'],
  ])('gets the intended URL as a suggestion: %s', (written, meant) => {
    const problems = toProblems({ routes: [{ ...ROUTE, upstream: written }] });
    expect(problems).toContain(`routes.0.upstream: "${written}" is not a URL. Did you mean "${meant}"?`);
  });

  test.each(['', 'a b', 'localhost:99999', 'localhost:5055/path', 'user@localhost:80', 'mailto:a@b'])(
    'gets the general form instead of a suggestion if none would be valid: %j',
    (written) => {
      const problems = toProblems({ routes: [{ ...ROUTE, upstream: written }] });
      expect(problems).toContain('is not a URL; write http://host:port, for example http://127.0.0.1:3000');
    },
  );
});

describe('a missing object', () => {
  const { match: _, ...withoutMatch } = ROUTE;
  test.each([
    ['match', { routes: [withoutMatch] }, 'match: { path: /hooks/orders }'],
    ['routes', { log: {} }, 'routes: [ { name: orders, match: { path: /hooks/orders }, upstream: http://127.0.0.1:3000 } ]'],
    ['basic', { proxy: { address: ':3128' }, routes: [ROUTE] }, 'basic: { users: [ { file: /etc/sidegate/users } ] }'],
    ['null in its place', { routes: [{ ...ROUTE, match: null }] }, 'match: { path: /hooks/orders }'],
    [
      'signature',
      { routes: [{ ...ROUTE, webhook: { scheme: 'custom', custom: { signed: ['body'] } } }] },
      'signature: { header: X-Signature }',
    ],
  ])('gets an example: %s', (_title, config, example) => {
    expect(toProblems(config)).toContain(`hint: for example ${example}`);
  });
});

describe('a mistake of users who know other tools gets a hint:', () => {
  const toWebhook = (webhook: object) => ({ routes: [{ ...ROUTE, webhook }] });
  const toSecret = (secret: object) => toWebhook({ keys: [{ name: 'current', secret }] });
  const toBasic = (basic: object) => ({ routes: [{ ...ROUTE, webhook: undefined, basic }] });
  test.each([
    ['preset', toWebhook({ preset: 'github', keys: KEYS }), 'did you mean "scheme"?'],
    ['two sources of a secret', toSecret({ env: 'A', file: '/a' }), '"file" cannot be set beside env'],
    ['a reference to a Secret', toSecret({ secretKeyRef: { name: 'a', key: 'b' } }), 'write { env: NAME }'],
    ['a file of htpasswd', toBasic({ realm: 'a', htpasswd: '/users' }), 'users: [ { file: /etc/sidegate/users } ]'],
    ['usersFile', toBasic({ realm: 'a', usersFile: '/users' }), 'users: [ { file: /etc/sidegate/users } ]'],
    ['a port alone', { listen: 8080, routes: [ROUTE] }, 'listen: { address: 0.0.0.0:8080 }'],
    [
      'an empty section',
      { routes: [{ ...ROUTE, webhook: null }] },
      'for example webhook: { scheme: github, keys: [ { name: current, ',
    ],
    ['an upstream with a path', { routes: [{ ...ROUTE, upstream: 'http://a:3000/x' }] }, 'write "http://a:3000"'],
  ])('%s', (_title, config, hint) => {
    expect(toProblems(config)).toContain(hint);
  });
});

test('a secret beside the keys gets an example of keys', () => {
  const problems = toProblems({ routes: [{ ...ROUTE, webhook: { scheme: 'github', secret: 'abc' } }] });
  expect(problems).toContain('hint: for example keys: [ { name: current, secret: { env: MY_SECRET } } ]');
  expect(problems).not.toContain('abc');
});

describe('a GitHub secret under standard-webhooks', () => {
  const check = async (route: object, secret: string): Promise<string> => {
    const [file, config] = [join(folder, 'secret'), join(folder, 'gate.yaml')];
    writeFileSync(file, secret);
    writeFileSync(config, stringify({ routes: [{ ...ROUTE, webhook: { keys: [{ name: 'k', secret: { file } }] }, ...route }] }));
    return (await checkConfig(config, clock)).map(formatProblem).join('\n');
  };

  test.each([
    ['the route', { name: 'github' }],
    ['the path', { match: { path: '/hooks/github' } }],
    ['the prefix', { match: { pathPrefix: '/GitHub/hooks' } }],
    ['the key', { webhook: { keys: [{ name: 'github-2026', secret: { file: join(folder, 'secret') } }] } }],
  ])('suggests scheme: github if %s is named after GitHub', async (_title, route) => {
    const problems = await check(route, 'It is a Secret to Everybody');
    expect(problems).toContain('the secret has no whsec_ prefix\n  hint: if GitHub sends this, set scheme: github');
    expect(problems).not.toContain('Everybody');
  });

  test('suggests it as an example if nothing names a sender', async () => {
    expect(await check({}, 'hunter2hunter2')).toContain(
      'if the sender does not use Standard Webhooks, set its scheme, for example scheme: github',
    );
  });

  test('suggests to remove the version before the prefix, as Supabase shows its secrets', async () => {
    const secret = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw';
    for (const encoding of [undefined, 'base64']) {
      const keys = [{ name: 'k', secret: { file: join(folder, 'secret'), ...(encoding && { encoding }) } }];
      const problems = await check({ webhook: { keys }, name: 'github' }, `v1,${secret}`);
      expect(problems).toContain('the secret has a version before whsec_\n  hint: remove v1, so that it starts with whsec_');
      expect(await check({ webhook: { keys } }, `v1,${secret}|v1,${secret}`)).toContain(
        'each secret between | as a separate key',
      );
      expect(problems).not.toContain(secret.slice(6));
    }
    expect(await check({}, secret)).toBe('');
    expect(await check({}, `v1,x${secret}`)).toContain('the secret has no whsec_ prefix');
  });

  test('suggests no sender that uses another kind of key', async () => {
    const problems = await check({ name: 'discord' }, 'hunter2hunter2');
    expect(problems).toContain('the secret has no whsec_ prefix');
    expect(problems).not.toContain('scheme: discord');
  });
});

describe("another sender's header under standard-webhooks", () => {
  test.each([
    ['X-GitHub-Delivery', 'GitHub', 'github'],
    ['svix-id', 'Svix', 'svix'],
    ['X-Shopify-Webhook-Id', 'Shopify (webhooks)', 'shopify'],
  ])('suggests the scheme of that sender: %s', (header, title, preset) => {
    const problems = toProblems({ routes: [{ ...ROUTE, webhook: { keys: KEYS, id: { header } } }] });
    expect(problems).toContain(`${header} is a header of ${title}, which does not sign as standard-webhooks`);
    expect(problems).toContain(`hint: scheme: ${preset}`);
  });

  test('suggests nothing for names that no sender uses', () => {
    expect(toProblems({ routes: [{ ...ROUTE, webhook: { keys: KEYS, id: { header: 'X-Event-Id' } } }] })).toBe('');
  });
});

describe("a sender's other name as scheme", () => {
  test.each([
    ['terraform', 'terraform-cloud'],
    ['Twitter', 'x'],
    ['amazon-sns', 'aws-sns'],
    ['Intuit', 'quickbooks'],
    ['mailchimp', 'mandrill'],
  ])('suggests its preset: %s', (scheme, preset) => {
    const problems = toProblems({ routes: [{ ...ROUTE, webhook: { scheme, keys: KEYS } }] });
    expect(problems).toContain(`unknown scheme "${scheme}". Did you mean "${preset}"?`);
  });
});

describe('the algorithm of a custom scheme', () => {
  const check = (algorithm: string): string => {
    const custom = { signature: { header: 'X-Signature', forms: [{ algorithm }] } };
    return toProblems({ routes: [{ ...ROUTE, webhook: { scheme: 'custom', custom, keys: KEYS } }] });
  };

  test.each(['rsa-sha1', 'RSA-PSS', 'rs256', 'es384', 'hmac-sha224', 'ecdsa-p384', 'hmac-md5', 'ed448'])(
    'is not corrected to another one: %s',
    (algorithm) => {
      expect(check(algorithm)).toContain(
        `"${algorithm}" is not supported by custom schemes; they verify hmac-sha1, hmac-sha256,`,
      );
      expect(check(algorithm)).not.toMatch(/did you mean/i);
    },
  );

  test.each([
    ['hmac-sha255', 'hmac-sha256'],
    ['hmac_sha1', 'hmac-sha1'],
    ['ecdsa_p256', 'ecdsa-p256'],
    ['ed25516', 'ed25519'],
  ])('is corrected if it is mistyped: %s', (algorithm, meant) => {
    expect(check(algorithm)).toContain(`Did you mean "${meant}"?`);
  });
});

describe('a value outside its bounds', () => {
  const custom = { signature: { header: 'X-Signature' } };
  const webhook = { scheme: 'custom', custom, keys: KEYS };
  test.each([
    [
      { contentTypes: [] },
      'contentTypes: the list is empty, so every delivery would get 415; remove contentTypes for the media types of the scheme',
    ],
    [{ custom: { ...custom, kind: [] } }, 'kind: expected at least 1 entry'],
    [{ custom: { ...custom, kind: ['A', 'B', 'C', 'D', 'E'] } }, 'kind: expected at most 4 entries'],
    [{ custom: { signature: { header: 'X-Signature', forms: [] } } }, 'forms: expected at least 1 entry'],
    [{ dedup: { maxKinds: 17 } }, 'maxKinds: expected at most 16'],
    [{ dedup: { maxKinds: 0 } }, 'maxKinds: expected at least 1'],
  ])('is reported in the words of the config: %j', (over, message) => {
    const problems = toProblems({ routes: [{ ...ROUTE, webhook: { ...webhook, ...over } }] });
    expect(problems).toContain(message);
    expect(problems).not.toMatch(/Too (?:small|big)/);
  });
});
