/** The commands that use the console API, as processes, against a real gate. */
import { writeFileSync } from 'node:fs';
import { afterEach, describe, expect, test } from 'vitest';
import { useAdminCli } from '../support/admin-cli.ts';
import { CONTROLS, runCommand, startCli } from '../support/cli.ts';
import { send } from '../support/client.ts';
import { LOGIN, startConsoleGate } from '../support/console.ts';
import { makeDelivery, unixNow } from '../support/deliveries.ts';
import { startRelay, useApp } from '../support/fixtures.ts';
import { startGate, type TestGate, toRoute, until } from '../support/gate.ts';
import { postEvent } from '../support/provider/client.ts';
import { toBasic } from '../support/users.ts';

const OTHER_SECRET = `whsec_${Buffer.alloc(24, 7).toString('base64')}`;
/** A terminal would take its C1 character for the start of a command, and the soft hyphen is not shown. */
const HOSTILE = 'a\u009b31m\u00ad';

const app = useApp();
let gate: TestGate;
const { call, callHere, admin, asUser } = useAdminCli(() => gate);
afterEach(() => gate.stop());

const startWithRoutes = async (): Promise<void> => {
  const orders = toRoute(app.port, { match: { path: '/hooks/orders' }, route: { name: 'orders' } });
  gate = await startGate({ routes: [toRoute(app.port), orders] });
};

describe('sidegate requests', () => {
  test('lists recent requests and shows one, by its ID or that of its event', async () => {
    await startWithRoutes();
    const valid = makeDelivery();
    await send(gate.port, valid);
    await send(gate.port, makeDelivery({ timestamp: unixNow() - 3_600 }));
    await send(gate.port, { ...makeDelivery({ secret: OTHER_SECRET }), path: '/hooks/orders' });
    const all = await call(['requests', 'list']);
    const [head, ...lines] = all.stdout.trimEnd().split('\n');
    expect([all.code, all.stderr]).toEqual([0, '']);
    expect(head).toMatch(/^AT +OUTCOME +STATUS +ROUTE +WHY +EVENT +REQUEST$/);
    expect(lines).toEqual([
      expect.stringMatching(/ rejected +401 +orders +signature: bad signature +- +[0-9a-f-]{36}$/),
      expect.stringMatching(/ rejected +401 +billing +timestamp: 36\d\d s old +- +[0-9a-f-]{36}$/),
      expect.stringMatching(new RegExp(` forwarded +200 +billing +app: 200 in \\d+ ms +${valid.id} +[0-9a-f-]{36}$`)),
    ]);
    const some = await call([
      'requests',
      'list',
      '--route',
      'orders',
      '--outcome',
      'rejected',
      '--from',
      '1h',
      '--format',
      'json',
    ]);
    const rows = JSON.parse(some.stdout) as { id: string; route: string }[];
    expect(rows.map(({ route }) => route)).toEqual(['orders']);
    const shown = await call(['requests', 'show', rows[0]?.id ?? '']);
    expect(shown.stdout).toMatch(/^outcome: +rejected: bad signature \(signature_mismatch\)$/m);
    expect(shown.stdout).toMatch(/^signature +stopped +bad signature$/m);
    expect(shown.stdout).toMatch(/^webhook-signature +\(hidden\)$/m);
    expect((await callHere(['requests', 'show', valid.id])).stdout).toMatch(new RegExp(`^event: +${valid.id}$`, 'm'));
    const none = await callHere(['requests', 'show', 'evt_none']);
    expect(none).toMatchObject({ code: 1, stdout: '', stderr: expect.stringContaining('no recent request has the ID evt_none') });
  }, 60_000);

  test('suggests the name of a mistyped route, and lists nothing for one without requests', async () => {
    await startWithRoutes();
    expect(await call(['requests', 'list', '--route', 'bilings'])).toEqual({
      code: 1,
      stdout: '',
      stderr: 'sidegate: no route is named bilings; did you mean billing? The routes are billing, orders, _unmatched, _proxy\n',
    });
    expect(await callHere(['requests', 'list', '--route', 'orders'])).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/^AT .*\n$/),
    });
    expect((await callHere(['requests', 'list', '--route', 'Not A Name'])).stderr).toContain('route: not the name of a route');
    expect((await callHere(['requests', 'list', '--outcome', 'lost'])).stderr).toContain('--outcome lost is not one of');
  }, 60_000);

  test('follows requests as they finish, through a restart of sidegate, until its reader has gone', async () => {
    await startWithRoutes();
    let target: number | undefined = gate.adminPort;
    const port = await startRelay(() => target);
    await send(gate.port, makeDelivery());
    const cli = startCli(['requests', 'list', '--follow', '--format', 'json', '--admin', `http://127.0.0.1:${port}`]);
    await cli.shows(/\n/);
    await send(gate.port, makeDelivery({ secret: OTHER_SECRET }));
    await cli.shows(/bad_signature.*\n/);
    target = undefined;
    await gate.stop();
    await until(() => cli.stderr().includes('trying again'));
    await startWithRoutes();
    target = gate.adminPort;
    await send(gate.port, { ...makeDelivery(), path: '/hooks/orders' });
    await cli.shows(/"route":"orders".*\n/);
    const rows = cli
      .stdout()
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as { id: string; outcome: string });
    expect(rows.map(({ outcome }) => outcome)).toEqual(['forwarded', 'rejected', 'forwarded']);
    expect(cli.stderr().match(/trying again/g)).toHaveLength(1);
    // Nobody reads any more, as after `| head`.
    cli.child.stdout?.destroy();
    await until(async () => {
      await send(gate.port, makeDelivery());
      return cli.child.exitCode !== null;
    });
    expect(cli.child.exitCode).toBe(0);
  }, 60_000);

  test('shows only what the filters select while it follows, each request once', async () => {
    await startWithRoutes();
    const wanted = makeDelivery();
    await send(gate.port, wanted);
    await send(gate.port, makeDelivery());
    const cli = startCli([
      ...['requests', 'list', '--follow', '--id', wanted.id, '--outcome', 'forwarded', '--outcome', 'answered'],
      ...admin(),
    ]);
    await cli.shows(/forwarded/);
    await send(gate.port, makeDelivery());
    await send(gate.port, wanted);
    await cli.shows(/answered +200 +billing +dedup: duplicate/);
    expect(cli.stdout().trimEnd().split('\n')).toHaveLength(2);
    expect((await callHere(['requests', 'list', '--follow', '--to', '1h'])).stderr).toContain('use either --follow or --to');
    expect((await callHere(['requests', 'list', '--follow', '--route', 'order'])).stderr).toContain('did you mean orders?');
  }, 60_000);

  test('escapes what a client wrote, as text and as JSON', async () => {
    await startWithRoutes();
    const { headers, ...delivery } = makeDelivery();
    await send(gate.port, { ...delivery, headers: { ...headers, 'User-Agent': HOSTILE } });
    const [{ id } = { id: '' }] = JSON.parse((await call(['requests', 'list', '--format', 'json'])).stdout) as [{ id: string }];
    const text = await call(['requests', 'show', id]);
    expect(text.stdout).toMatch(/^user-agent +a\\u009b31m\\u00ad$/m);
    const json = await call(['requests', 'show', id, '--format', 'json']);
    const detail = JSON.parse(json.stdout) as { headers: readonly object[] };
    expect(detail.headers).toContainEqual({ name: 'user-agent', value: HOSTILE });
    const unknown = await call(['requests', 'show', '\u001b]0;x\u0007\u202e']);
    expect(unknown.stderr).toContain('no recent request has the ID \\u001b]0;x\\u0007\\u202e');
    for (const { stdout, stderr } of [text, json, unknown]) expect(stdout + stderr).not.toMatch(CONTROLS);
  }, 60_000);
});

test('shows a stored body, without its redacted values', async () => {
  gate = await startGate({ routes: [toRoute(app.port, { webhook: { storeBody: { redact: ['$.card'] } } })] });
  await send(gate.port, makeDelivery({ body: '{"card":"tok_4242",\n"note":"a\u009bb"}' }));
  const [{ id } = { id: '' }] = JSON.parse((await callHere(['requests', 'list', '--format', 'json'])).stdout) as [{ id: string }];
  const { stdout } = await callHere(['requests', 'show', id]);
  expect(stdout).toMatch(/^BODY\n\{"card":"\[redacted\]",\n"note":"a\\u009bb"\}$/m);
  expect(stdout).not.toContain('tok_4242');
}, 60_000);

describe('sidegate overview', () => {
  test('shows config, store and routes, and exits 1 after a failed reload', async () => {
    await startWithRoutes();
    await send(gate.port, makeDelivery());
    await send(gate.port, makeDelivery({ secret: OTHER_SECRET }));
    const { code, stdout } = await call(['overview']);
    expect(code).toBe(0);
    expect(stdout).toMatch(/^store: +memory, up$/m);
    expect(stdout).toMatch(/^billing +enforce +[\d.]+\/s +0 +1 \(50 %\) .* 1 bad_signature$/m);
    writeFileSync(gate.file, 'routes: [{ naem: "\u001b[31m" }]\n');
    await gate.gate.reload();
    const failed = await call(['overview']);
    expect([failed.code, failed.stdout]).toEqual([1, expect.stringMatching(/^last reload: +failed 20[^]*naem/m)]);
    expect(failed.stdout).not.toMatch(CONTROLS);
    expect(JSON.parse((await callHere(['overview', '--format', 'json'])).stdout).routes).toHaveLength(2);
  }, 60_000);
});

describe('sidegate logins', () => {
  test('lists failed logins and bans, and releases one for a user', async () => {
    const users = { name: 'users', match: { path: '/users' }, upstream: `http://127.0.0.1:${app.port}` };
    const basic = { realm: 'users', users: { file: 'operators' }, requireTls: false, limit: { failures: 2 } };
    gate = await startConsoleGate(app.port, { routes: [{ ...users, basic }] });
    const visit = async (headers: Record<string, string>): Promise<number> =>
      (await send(gate.port, { method: 'GET', path: '/users', headers })).status;
    for (const password of ['a', 'b']) await visit(toBasic('nobody', password));
    expect(await visit(LOGIN)).toBe(429);
    expect((await call(['logins', 'list'])).stdout).toMatch(/^users +127\.0\.0\.1 +3 +20\S+Z +\d+ s +users$/m);
    const release = ['logins', 'release', '--realm', 'users', '--client', '127.0.0.1'];
    expect(await call(release)).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('only users can act: use --user NAME with --password-file FILE'),
    });
    expect(await call([...release, ...asUser])).toEqual({ code: 0, stdout: '127.0.0.1 is released in users\n', stderr: '' });
    expect((await callHere([...release, ...asUser])).stdout).toBe('127.0.0.1 has no failed logins in users\n');
    expect(await visit(LOGIN)).toBe(200);
    expect((await callHere(['logins', 'release', '--realm', 'users', ...asUser])).stderr).toContain(
      'use either --client ADDRESS',
    );
    expect((await callHere([...release.slice(0, 3), 'user', '--name', 'ada', ...asUser])).stderr).toContain(
      'no section has this realm',
    );
  }, 60_000);
});

describe('the sending side through the admin port', () => {
  test('is shown to local readers and changed by users: dead letters, retries, endpoints', async () => {
    app.handler = (_request, response) => response.writeHead(503).end();
    gate = await startConsoleGate(app.port);
    const id = await postEvent(gate.providerPort);
    await until(async () => (await callHere(['deliveries', 'list', '--state', 'dead'])).stdout.includes(id));
    expect((await callHere(['deliveries', 'show', `${id}~acme`])).stdout).toMatch(/^.* server_error \(503\) /m);
    app.handler = (_request, response) => response.end();
    expect((await callHere(['deliveries', 'retry', '--endpoint', 'acme', '--yes'])).stderr).toContain('only users can act');
    const retried = await call(['deliveries', 'retry', '--endpoint', 'acme', '--yes', ...asUser]);
    expect(retried).toMatchObject({ code: 0, stdout: 'retrying 1 delivery\n' });
    expect((await callHere(['endpoints', 'list'])).stdout).toMatch(/^acme +enabled /m);
    expect((await call(['endpoints', 'disable', 'acme', ...asUser])).stdout).toBe('acme is disabled\n');
    expect((await callHere(['endpoints', 'show', 'acme'])).stdout).toMatch(/^state: +disabled \(manual\)/m);
    const both = await callHere(['endpoints', 'list', '--provider', 'http://127.0.0.1:1']);
    expect(both).toMatchObject({ code: 2, stderr: 'sidegate: use either --provider or --admin\n' });
    expect((await callHere(['endpoints', 'create', '--url', 'https://a.example'])).stderr).toContain("unknown option '--admin'");
  }, 60_000);

  test('says that the config has no sending side', async () => {
    await startWithRoutes();
    expect((await callHere(['endpoints', 'list'])).stderr).toContain(
      'this gate sends no webhooks: its config has no provider section',
    );
  }, 60_000);
});

test('completes the commands and their values', async () => {
  await startWithRoutes();
  const { stdout: script } = await runCommand(['completion', 'bash']);
  for (const word of ['requests', 'logins', 'overview', '--follow', 'forwarded queued answered observed rejected failed'])
    expect(script).toContain(word);
}, 60_000);
