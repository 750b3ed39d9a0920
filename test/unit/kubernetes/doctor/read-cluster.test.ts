import { describe, expect, test } from 'vitest';
import { KubeClient } from '../../../../src/kubernetes/client/client.ts';
import { toGateConfig } from '../../../../src/kubernetes/doctor/gate-config.ts';
import { readBuildVersion, readConfigHash, readFacts } from '../../../../src/kubernetes/doctor/read-cluster.ts';
import { diagnose } from '../../../../src/kubernetes/doctor/report.ts';
import { parseInjectorConfig } from '../../../../src/kubernetes/injector/injector-config.ts';
import { answerJson, startApiServer, toClient } from '../../../support/api-server.ts';
import { makePod, makeTemplate } from '../../../support/doctor.ts';
import { FakeClock, settle } from '../../../support/fake-clock.ts';
import { measureHeap } from '../../../support/heap.ts';

const LARGEST = 8_388_608;
const line = 'sidegate_config_info{hash="0123456789abcdef"} 1';

describe('the hash of the config', () => {
  test.each([
    ['alone', line],
    ['among others', `# TYPE sidegate_config_info gauge\n${line}\nup 1\n`],
    ['with labels and a decimal', 'sidegate_config_info{pod="a",hash="0123456789abcdef",zone="b"} 1.0\n'],
  ])('is found %s', (_, text) => {
    expect(readConfigHash(text)).toBe('0123456789abcdef');
  });

  test('keeps no text in memory', () => {
    const rest = Buffer.alloc(LARGEST, '#');
    // Long strings, which are outside the heap.
    const measure = (): number => {
      measureHeap();
      const { external, arrayBuffers } = process.memoryUsage();
      return external - arrayBuffers;
    };
    const before = measure();
    const kept = Array.from({ length: 24 }, () => readConfigHash(Buffer.concat([Buffer.from(`${line}\n`), rest]).toString()));
    // Some of them may not be collected yet.
    expect(measure() - before).toBeLessThan(12 * LARGEST);
    expect(kept).toHaveLength(24);
  });

  test.each([
    ['in nothing', ''],
    ['in another metric', 'other_info{hash="0123456789abcdef"} 1'],
    ['in a comment', `# ${line}`],
    ['across lines', 'sidegate_config_info{a="\n",hash="0123456789abcdef"} 1'],
    ['where the value is not 1', 'sidegate_config_info{hash="0123456789abcdef"} 0'],
    ['in another label', 'sidegate_config_info{xhash="0123456789abcdef"} 1'],
    ['in a line without end', `sidegate_config_info{a="${'x'.repeat(LARGEST)}",hash="01"} 1`],
    ['in starts without ends', 'sidegate_config_info{\n'.repeat(LARGEST / 22)],
    ['in labels without ends', 'sidegate_config_info{hash="0"hash="0"hash="0"\n'.repeat(LARGEST / 46)],
    ['in one line of them', `sidegate_config_info{${'hash="0"'.repeat(LARGEST / 8)}`],
  ])('is not searched for long %s', (_, text) => {
    expect(readConfigHash(text)).toBeUndefined();
  });
});

test('slow pods take a minute at most, and the first pods of all namespaces come first', async () => {
  const inNamespace = (namespace: string, count: number) =>
    Array.from({ length: count }, (_, index) => {
      const pod = makePod(`web-${index}`);
      return { ...pod, metadata: { ...pod.metadata, namespace } };
    });
  const items = [...inNamespace('slow', 110), ...inNamespace('tenant', 1)];
  const server = await startApiServer(({ url }, response) => {
    if (url.startsWith('/api/v1/pods?')) answerJson(response, 200, { items });
    else if (url.includes('/tenant/pods/')) response.end(line);
    else if (!url.includes('/proxy/')) answerJson(response, url === '/version' ? 200 : 404, { major: '1', minor: '34' });
  });
  const asked = (): readonly string[] => server.asked.map(({ url }) => url).filter((url) => url.includes('/proxy/'));
  const clock = new FakeClock();
  const client = new KubeClient({ kind: 'pod', server: server.url, ca: server.ca, token: async () => 't' }, clock);
  try {
    const facts = readFacts(client, { namespace: undefined, isLive: true, given: undefined }, clock);
    for (let turn = 1; turn <= 12; turn++) {
      while (asked().length < turn * 8 + 1) await settle();
      await clock.advance(5_000);
    }
    const { live } = await facts;
    expect(live.get('tenant/web-0')).toEqual({ hash: '0123456789abcdef', version: undefined });
    const unknown = [...live.values()].flatMap((each) => ('unknown' in each ? [each.unknown.replace(/^127.*: /, '')] : []));
    expect(Object.entries(Object.groupBy(unknown, (each) => each)).map(([text, all]) => [text, all?.length])).toEqual([
      ['no complete response within 5 s', 96],
      ['it was not asked, because others took the 60 s for all pods', 14],
    ]);
    expect(asked()).toHaveLength(97);
  } finally {
    client.close();
    await server.stop();
  }
});

describe('a config with which the sidecar cannot start', () => {
  const route = (secret: string): string =>
    `routes: [{ name: a, match: { path: / }, webhook: { scheme: stripe, keys: [{ name: a, secret: ${secret} }] } }]\n`;
  const FILE = '{ file: ../secrets/web-secret/key }';

  test.each([
    [
      'variables of its own',
      route('{ env: STRIPE_SECRET }'),
      /secret\.env is STRIPE_SECRET, but the sidecar has no such variable/,
    ],
    ['no port that its arguments replace', `admin: { address: "127.0.0.1:8480" }\n${route(FILE)}`, undefined],
    [
      'the port of the app for the provider',
      `provider:
  address: 127.0.0.1:9000
  queue: { postgres: { url: { file: ../secrets/web-secret/pg } } }
  endpoints: [{ name: a, url: "https://a.example/h", events: ["*"], secret: { file: ../secrets/web-secret/a } }]
${route(FILE)}`,
      /^the config in the ConfigMap web-gate is invalid: .*provider/,
    ],
    ['nothing else', route(FILE), undefined],
  ])('is found: %s', async (_what, gate, message) => {
    const items = [makePod('web-a', makeTemplate({ container: { ports: [{ containerPort: 9000 }] } }))];
    expect(await findBroken({ pods: items }, gate)).toEqual(message === undefined ? [] : [expect.stringMatching(message)]);
  });

  const provider = (port: number): string => `provider:
  address: 127.0.0.1:${port}
  queue: { postgres: { url: { file: ../secrets/web-secret/pg } } }
  endpoints: [{ name: a, url: "https://a.example/h", events: ["*"], secret: { file: ../secrets/web-secret/a } }]
${route(FILE)}`;
  const annotated = (annotations: object): object => ({ annotations });

  test.each([
    ['nothing if only a port of the file is taken', `admin: { address: ":8080" }\n${route(FILE)}`, {}, undefined],
    ['the data port', provider(8480), {}, /provider/],
    ['the annotated port', provider(9100), annotated({ 'sidegate.dev/port': '9100' }), /provider/],
    ['the port of the app', provider(8080), annotated({ 'sidegate.dev/interception': 'same-port' }), /provider/],
    ['no data port, as that of the app is taken', provider(8480), annotated({ 'sidegate.dev/interception': 'env' }), undefined],
    [
      'the port of a StatefulSet with a queue',
      provider(9100),
      annotated({ 'sidegate.dev/port': '9100', 'sidegate.dev/queue-volume': 'queue' }),
      /provider/,
    ],
    ['the port of a denied pod', provider(8480), annotated({ 'sidegate.dev/port': 'x' }), /provider/],
  ])('is found without a pod: %s', async (_what, gate, template, message) => {
    const metadata = { name: 'web', namespace: 'shop', uid: 'w' };
    const statefulsets = [{ metadata, spec: { replicas: 0, template: makeTemplate(template) } }];
    expect(await findBroken({ statefulsets }, gate)).toEqual(message === undefined ? [] : [expect.stringMatching(message)]);
  });

  test('is found without a pod: the port in the config of the injector', async () => {
    const { config } = parseInjectorConfig('injector.yaml', 'sidecar: { image: sidegate, port: 9200 }');
    const given = config && { config, version: '1.0.0' };
    const metadata = { name: 'web', namespace: 'shop', uid: 'w' };
    const deployments = [{ metadata, spec: { replicas: 0, template: makeTemplate() } }];
    expect(await findBroken({ deployments }, provider(9200), given)).toEqual([expect.stringMatching(/provider/)]);
    expect(await findBroken({ deployments }, provider(8480), given)).toEqual([]);
  });

  async function findBroken(
    lists: Readonly<Record<string, readonly object[]>>,
    gate: string,
    given?: Parameters<typeof readFacts>[1]['given'],
  ): Promise<readonly string[]> {
    const server = await startApiServer(({ url }, response) => {
      const items = lists[/\/v1\/([a-z]+)\?/.exec(url)?.[1] ?? ''];
      const isKnown = items !== undefined || url === '/version' || url.endsWith('/namespaces/shop/configmaps/web-gate');
      answerJson(response, isKnown ? 200 : 404, { major: '1', minor: '34', items, data: { 'gate.yaml': gate } });
    });
    const client = toClient(server);
    try {
      const facts = await readFacts(client, { namespace: undefined, isLive: false, given }, new FakeClock());
      const findings = diagnose(facts).workloads.flatMap((workload) => workload.findings);
      return findings.filter(({ code }) => code === 'config-broken').map((each) => each.message);
    } finally {
      client.close();
      await server.stop();
    }
  }
});

test('a config that is valid with the arguments of some sidecars only is reported for the others', () => {
  const gate = `admin: { address: ":9000" }\nroutes: [{ name: a, match: { path: / }, allow: anyone }]\n`;
  const listen = (port: number): string => JSON.stringify(['run', '--listen', `:${port}`, '--upstream', 'http://127.0.0.1:3000']);
  const config = toGateConfig({ 'gate.yaml': gate }, new FakeClock(), new Set([listen(9000), listen(8480)]));
  const conflicts = config.state === 'valid' ? [...(config.conflicts ?? [])] : [];
  expect(conflicts).toEqual([
    [listen(9000), [expect.stringMatching(/address/)]],
    [listen(8480), []],
  ]);
  // The file alone says nothing about the ports of a sidecar.
  const withDefaultPort = gate.replace('9000', '8080');
  expect(toGateConfig({ 'gate.yaml': withDefaultPort }, new FakeClock(), new Set([listen(8480)])).state).toBe('valid');
  expect(toGateConfig({ 'gate.yaml': 'routes: x' }, new FakeClock(), new Set([listen(8480)])).state).toBe('broken');
});

describe('the version of the program', () => {
  test('is read from its own metric', () => {
    expect(readBuildVersion('sidegate_build_info{version="1.2.0-rc.1+5",revision="unknown",node="24"} 1\n')).toBe('1.2.0-rc.1+5');
    expect(readBuildVersion('sidegate_build_info{node="24",version="1.0.0"} 1')).toBe('1.0.0');
  });

  test.each(['sidegate_build_info{version="a b"} 1', 'other_info{version="1.0.0"} 1', 'sidegate_build_info{xversion="1.0.0"} 1'])(
    'is not in %s',
    (text) => {
      expect(readBuildVersion(text)).toBeUndefined();
    },
  );
});
