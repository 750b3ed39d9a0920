import { mkdirSync, readFileSync, renameSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, test } from 'vitest';
import { type AnswerWith, answerJson, toStatus } from '../support/api-server.ts';
import { type Authority, makeAuthority } from '../support/certificates.ts';
import { useFolder } from '../support/fixtures.ts';
import { type Sections, until } from '../support/gate.ts';
import { startInjector, type TestInjector } from '../support/injector.ts';
import { LAUNCHER } from '../support/process.ts';
import { type Ended, run } from '../support/run.ts';

let injector: TestInjector | undefined;
const folder = useFolder();
afterEach(async () => {
  await injector?.stop();
  injector = undefined;
});

const POD = {
  metadata: { name: 'web', labels: { 'sidegate.dev/inject': 'true' }, annotations: { 'sidegate.dev/config': 'gate' } },
  spec: { containers: [{ name: 'app', image: 'app:1', ports: [{ containerPort: 3000 }] }] },
};
const REQUEST = {
  uid: 'u-1',
  kind: { group: '', version: 'v1', kind: 'Pod' },
  operation: 'CREATE',
  namespace: 'shop',
  object: POD,
};
const toReview = (over: object = {}): string =>
  JSON.stringify({ apiVersion: 'admission.k8s.io/v1', kind: 'AdmissionReview', request: { ...REQUEST, ...over } });

/** A cluster where nothing may be read but its version; `bundle`: the caBundle of the webhook configuration. */
function toCluster(bundle: () => string | undefined = () => undefined): AnswerWith {
  return ({ url }, response) => {
    if (url === '/version') return answerJson(response, 200, { major: '1', minor: '34+' });
    const caBundle = bundle();
    if (!url.includes('mutatingwebhookconfigurations') || caBundle === undefined)
      return answerJson(response, 403, toStatus(403, 'Forbidden', 'x is forbidden: User "a" cannot create resource "x"'));
    const clientConfig = { service: { name: 'injector', namespace: 'gate' }, caBundle };
    return answerJson(response, 200, {
      metadata: { resourceVersion: '1' },
      webhooks: [{ name: 'inject.sidegate.dev', clientConfig }],
    });
  };
}

/** As the kubelet mounts a Secret: the files lead through a link that is swapped. */
function mount(folder: string, pair: { readonly cert: string; readonly key: string }, version: number): void {
  const data = join(folder, `..${version}`);
  mkdirSync(data);
  writeFileSync(join(data, 'tls.crt'), readFileSync(pair.cert));
  writeFileSync(join(data, 'tls.key'), readFileSync(pair.key));
  symlinkSync(`..${version}`, join(folder, '..new'));
  renameSync(join(folder, '..new'), join(folder, '..data'));
  if (version > 1) return;
  for (const name of ['tls.crt', 'tls.key']) symlinkSync(join('..data', name), join(folder, name));
}

async function startWithDirectory(bundle?: () => string | undefined, more: Sections = {}): Promise<Authority> {
  let authority: Authority | undefined;
  injector = await startInjector(toCluster(bundle), (folder) => {
    authority = makeAuthority(folder, 'root');
    mkdirSync(join(folder, 'tls'));
    mount(join(folder, 'tls'), authority.issue('server', 'DNS:injector.gate.svc'), 1);
    const certificate = { directory: join(folder, 'tls'), ...(bundle === undefined ? {} : { webhook: 'injector' }) };
    return { certificate, ...more };
  });
  return authority as Authority;
}

const running = (): TestInjector => injector as TestInjector;
const isReady = async (): Promise<boolean> => (await running().ready()).status === 200;

describe('a review', () => {
  test('gets the patch in response, with its UID', async () => {
    const authority = await startWithDirectory();
    await until(isReady);
    const { status, text } = await running().send(toReview(), { ca: readFileSync(authority.ca) });
    const { response } = JSON.parse(text) as { response: Record<string, string> };
    expect([status, response['uid'], response['patchType']]).toEqual([200, 'u-1', 'JSONPatch']);
    expect(Buffer.from(String(response['patch']), 'base64').toString()).toContain('"name":"sidegate"');
    expect(await running().metric('sidegate_injector_admissions_total{result="injected",reason="service"}')).toBe(1);
    expect(await running().metric('sidegate_injector_admission_duration_seconds_count')).toBe(1);
  });

  test('needs no permissions: resources that cannot be read are silently skipped', async () => {
    const callers = makeAuthority(folder, 'lookups');
    const caller = callers.issue('kube-apiserver', 'DNS:apiserver');
    await startWithDirectory(undefined, { clientAuth: { caFile: callers.ca, allowedNames: ['kube-apiserver'] } });
    await until(isReady);
    const { text } = await running().send(toReview(), { cert: readFileSync(caller.cert), key: readFileSync(caller.key) });
    expect((JSON.parse(text) as { response: { warnings: string[] } }).response.warnings).toHaveLength(1);
    expect(await running().metric('sidegate_injector_lookups_total{outcome="forbidden"}')).toBe(1);
    await until(async () => (await running().metric('sidegate_injector_events_total{outcome="forbidden"}')) === 1);
  });

  test('that arrives before the version of the cluster is known is left to the failurePolicy', async () => {
    injector = await startInjector(
      (_asked, response) => answerJson(response, 503, toStatus(503, 'ServiceUnavailable', 'later')),
      (folder) => ({ certificate: { directory: folder } }),
    );
    expect((await running().send(toReview())).status).toBe(500);
    expect(await running().metric('sidegate_injector_requests_rejected_total{reason="internal"}')).toBe(1);
    expect(await running().ready()).toMatchObject({ status: 503 });
  });

  test.each([
    ['path', 404, toReview(), { path: '/other' }],
    ['method', 405, '', { method: 'GET' }],
    ['content_type', 415, toReview(), { headers: { 'Content-Type': 'text/plain' } }],
    ['content_type', 415, toReview(), { headers: { 'Content-Type': 'application/json', 'Content-Encoding': 'gzip' } }],
    ['body_too_large', 413, Buffer.alloc(5 * 1024 * 1024), {}],
    ['not_a_review', 400, 'none', {}],
    ['not_a_review', 400, '{}', {}],
    ['not_a_review', 400, Buffer.from([0x22, 0xff, 0x22]), {}],
    ['too_complex', 413, `[${'0,'.repeat(400_000)}0]`, {}],
  ] as const)('in another form is counted and logged as %s (%i)', async (reason, status, content, options) => {
    await startWithDirectory();
    await until(isReady);
    const answer = await running()
      .send(content, options)
      .catch(() => undefined);
    // The rest of a content that is too large may be cut off before its answer is read.
    expect([status, undefined]).toContain(answer?.status);
    expect(await running().metric(`sidegate_injector_requests_rejected_total{reason="${reason}"}`)).toBe(1);
    const lines = running().log();
    const [line, ...others] = lines.filter(({ msg }) => msg === 'review_rejected');
    expect(others).toEqual([]);
    expect(line).toMatchObject({ reason, client: '127.0.0.1', problem: expect.stringMatching(/^[^\n]+$/) });
    expect(line?.['bytes']).toBe(content === '' ? undefined : Buffer.byteLength(content));
  });

  test('of the largest pod that etcd stores gets its patch', async () => {
    await startWithDirectory();
    await until(isReady);
    const [container] = POD.spec.containers;
    const args = Array.from({ length: 375_000 }, () => 'a');
    const object = { ...POD, spec: { containers: [{ ...container, args }] } };
    const content = toReview({ object });
    expect(content.length).toBeGreaterThan(1_500_000);
    const { status, text } = await running().send(content);
    expect([status, JSON.parse(text).response.patchType]).toEqual([200, 'JSONPatch']);
  });
});

describe('certificates in a directory', () => {
  const UNTRUSTED = { code: 'UNABLE_TO_VERIFY_LEAF_SIGNATURE' };

  test('are reloaded when they are swapped, for new connections', async () => {
    const authority = await startWithDirectory();
    await until(isReady);
    const next = makeAuthority(running().folder, 'next');
    await expect(running().send(toReview(), { ca: readFileSync(next.ca) })).rejects.toMatchObject(UNTRUSTED);
    mount(join(running().folder, 'tls'), next.issue('server-2', 'DNS:injector.gate.svc'), 2);
    await until(
      async () => (await running().metric('sidegate_injector_certificate_rotations_total{step="server_loaded"}')) === 2,
    );
    expect((await running().send(toReview(), { ca: readFileSync(next.ca) })).status).toBe(200);
    await expect(running().send(toReview(), { ca: readFileSync(authority.ca) })).rejects.toMatchObject(UNTRUSTED);
  });

  test('stay in use while their files are broken', async () => {
    const authority = await startWithDirectory();
    await until(isReady);
    writeFileSync(join(folder, 'broken.key'), 'none');
    mount(join(running().folder, 'tls'), { cert: authority.ca, key: join(folder, 'broken.key') }, 2);
    await until(() =>
      running()
        .log()
        .some(({ msg }) => msg === 'certificate_check_failed'),
    );
    expect((await running().send(toReview(), { ca: readFileSync(authority.ca) })).status).toBe(200);
    expect(await isReady()).toBe(true);
  });

  test('are not ready before the caBundle verifies them', async () => {
    let bundle = '';
    const authority = await startWithDirectory(() => bundle);
    await until(async () => (await running().ready()).text.includes('the caBundle of the webhook configuration is empty'));
    bundle = readFileSync(authority.ca).toString('base64');
    await injector?.stop();
    injector = undefined;
    const other = await startWithDirectory(() => bundle);
    await until(async () => (await running().ready()).text.includes('does not contain its CA'));
    expect(readFileSync(other.ca).toString('base64')).not.toBe(bundle);
  });
});

test('an injector whose certificate is in a Secret reports what is missing', async () => {
  injector = await startInjector(
    toCluster(() => ''),
    () => ({ certificate: { secret: { namespace: 'gate', name: 'tls' }, webhook: 'injector' } }),
  );
  const wanted = 'Secret tls in namespace gate: forbidden; grant the service account get on this Secret';
  await until(async () => (await running().ready()).text.includes(wanted));
});

const runSidegate = (args: readonly string[]): Promise<Ended> => run(process.execPath, [LAUNCHER, ...args]);

describe('the command', () => {
  test('reports what is wrong with its config', async () => {
    const file = join(folder, 'injector.yaml');
    writeFileSync(
      file,
      'sidecar: { image: a }\nrotation: { namespace: a, caSecret: b, serverSecret: c, service: d, webhook: e, overlapp: 1h }\n',
    );
    for (const command of ['inject-server', 'rotate-certificates']) {
      const { code, stderr } = await runSidegate([command, '--config', file]);
      expect([code, stderr]).toEqual([1, expect.stringContaining('did you mean "overlap"?')]);
    }
  });

  test('requires a config, and checks its options', async () => {
    for (const command of ['inject-server', 'rotate-certificates']) {
      expect(await runSidegate([command])).toMatchObject({ code: 2, stderr: expect.stringContaining('--config FILE') });
      const stdout = expect.stringContaining(`Usage: sidegate ${command}`);
      expect(await runSidegate([command, '--help'])).toMatchObject({ code: 0, stdout });
    }
  });

  test.each([
    ['inject-server', 'server: missing'],
    ['rotate-certificates', 'rotation: missing'],
  ])('%s requires its section', async (command, problem) => {
    const file = join(folder, 'sidecar.yaml');
    writeFileSync(file, 'sidecar: { image: a }\n');
    const { code, stderr } = await runSidegate([command, '--config', file]);
    expect([code, stderr]).toEqual([1, expect.stringContaining(problem)]);
  });
});
