import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import type { ChartInput } from '../../chart/values.ts';
import { parseConfig } from '../../src/config/load/load.ts';
import { systemClock } from '../../src/core/clock.ts';
import { CHART, pick, type Rendered, renderChart, templateChart } from '../support/chart.ts';

type Deliver = NonNullable<ChartInput['deliver']>;
// biome-ignore lint/suspicious/noExplicitAny: tests reach deep into rendered objects
type Json = any;

const QUEUE = { postgres: { url: { file: '../secrets/postgres/url' } } };
const CONFIG = {
  provider: {
    queue: QUEUE,
    endpoints: [{ name: 'acme', url: 'https://acme.example/hooks', secret: { env: 'ACME_SECRET' } }],
  },
};
const render = (deliver: Deliver = {}, values: ChartInput = {}): Promise<readonly Rendered[]> =>
  renderChart({ ...values, deliver: { enabled: true, config: CONFIG, ...deliver } });
const ownOf = (objects: readonly Rendered[]): readonly Rendered[] =>
  objects.filter(({ metadata }) => metadata.name === 'sidegate-deliver');
const podOf = (objects: readonly Rendered[]): Json =>
  (pick(objects, 'Deployment', 'sidegate-deliver') as Json)['spec'].template.spec;

describe('the central sending side', () => {
  test('is off until it is asked for', async () => {
    expect(ownOf(await renderChart({ monitoring: { podMonitor: { enabled: true } } }))).toEqual([]);
  });

  test('runs `sidegate deliver` with a config that the command accepts, from the place where a sidecar has it', async () => {
    for (const values of [{}, { files: [join(CHART, 'ci', 'deliver-values.yaml')] }]) {
      const objects = 'files' in values ? await renderChart({}, values) : await render();
      const [container] = podOf(objects).containers;
      expect(container.args).toEqual(['deliver', '--config', '/etc/sidegate/config/gate.yaml', '--admin', ':8481']);
      const data = pick(objects, 'ConfigMap', 'sidegate-deliver')['data'] as Record<string, string>;
      const overrides = { isDeliverOnly: true, admin: ':8481' };
      const { config, problems } = parseConfig('/etc/sidegate/config/gate.yaml', data['gate.yaml'] ?? '', systemClock, {
        overrides,
      });
      expect(problems.filter(({ severity }) => severity === 'error')).toEqual([]);
      expect(config?.provider).toMatchObject({ roles: ['deliver'], endpoints: [{ name: 'acme' }] });
      expect(config?.provider?.queue.postgres?.url).toEqual({ file: '/etc/sidegate/secrets/postgres/url' });
    }
  });

  test('keeps large numbers of the config as they are', async () => {
    const config = { ...CONFIG, provider: { queue: { ...QUEUE, maxEvents: 100_000_000 }, maxConnections: 1_000_000 } };
    const data = pick(await render({ config }), 'ConfigMap', 'sidegate-deliver')['data'] as Record<string, string>;
    expect(data['gate.yaml']).toContain('maxEvents: 100000000\n');
    expect(data['gate.yaml']).toContain('maxConnections: 1000000\n');
  });

  test('is no container named sidegate, which the policies would compare with the sidecar, and has no token', async () => {
    const { containers, automountServiceAccountToken } = podOf(await render());
    expect(containers.map(({ name }: Json) => name)).toEqual(['deliver']);
    expect(automountServiceAccountToken).toBe(false);
  });

  test('mounts Secrets and existing configs as directories, with what the values add', async () => {
    const objects = await renderChart({}, { files: [join(CHART, 'ci', 'deliver-existing-values.yaml')] });
    const { containers, volumes, serviceAccountName } = podOf(objects);
    expect(serviceAccountName).toBe('web');
    expect(volumes).toEqual([
      { name: 'config', configMap: { name: 'web-gate' } },
      { name: 'secret-1', secret: { secretName: 'postgres' } },
      { name: 'secret-2', secret: { secretName: 'endpoints' } },
      { name: 'ca', configMap: { name: 'company-ca' } },
    ]);
    expect(containers[0].volumeMounts.map(({ mountPath }: Json) => mountPath)).toEqual([
      '/etc/sidegate/config',
      '/etc/sidegate/secrets/postgres',
      '/etc/sidegate/secrets/endpoints',
      '/etc/company-ca',
    ]);
    const own = ownOf(objects);
    expect(own.map(({ kind }) => kind).sort()).toEqual(['Deployment', 'NetworkPolicy']);
    for (const { metadata } of own) expect(metadata.namespace).toBe('default');
    const fromSecret = podOf(await render({ config: {}, existingSecret: 'gate' }));
    expect(fromSecret.volumes).toEqual([{ name: 'config', secret: { secretName: 'gate' } }]);
  });

  test('restarts for a change of its config, and for nothing else', async () => {
    const toSum = async (deliver: Deliver, values: ChartInput = {}): Promise<unknown> =>
      (pick(await render(deliver, values), 'Deployment', 'sidegate-deliver') as Json)['spec'].template.metadata.annotations;
    const sum = await toSum({});
    expect(await toSum({ config: { ...CONFIG, log: { level: 'debug' } } })).not.toEqual(sum);
    expect(await toSum({ replicas: 5 }, { sidecar: { preStop: '7s' } })).toEqual(sum);
    expect(await toSum({ config: {}, existingConfigMap: 'gate' })).toBeUndefined();
  });

  test('is reached at its admin port only, and reaches DNS, PostgreSQL, and port 443 outside of private networks', async () => {
    const { ingress, egress, policyTypes } = (pick(await render(), 'NetworkPolicy', 'sidegate-deliver') as Json)['spec'];
    expect(policyTypes).toEqual(['Ingress', 'Egress']);
    expect(ingress).toEqual([{ ports: [{ port: 8481, protocol: 'TCP' }] }]);
    const [dns, postgres, endpoints, ...others] = egress;
    expect(others).toEqual([]);
    expect(dns.ports.map(({ port, protocol }: Json) => `${port} ${protocol}`)).toEqual(['53 UDP', '53 TCP']);
    expect(postgres).toEqual({ ports: [{ port: 5432, protocol: 'TCP' }] });
    expect(endpoints.ports).toEqual([{ port: 443, protocol: 'TCP' }]);
    expect(endpoints.to.map(({ ipBlock }: Json) => ipBlock.cidr)).toEqual(['0.0.0.0/0', '::/0']);
    expect(endpoints.to[0].ipBlock.except).toContain('169.254.0.0/16');
    expect(endpoints.to[1].ipBlock.except).toEqual(['fc00::/7', 'fe80::/10']);
  });

  test('reaches endpoints and a collector inside the cluster if the values say so, and has no policy if they say so', async () => {
    const objects = await renderChart({}, { files: [join(CHART, 'ci', 'deliver-existing-values.yaml')] });
    const { egress } = (pick(objects, 'NetworkPolicy', 'sidegate-deliver') as Json)['spec'];
    expect(egress.slice(1)).toEqual([
      { ports: [5432, 6432].map((port) => ({ port, protocol: 'TCP' })) },
      { ports: [443, 8443].map((port) => ({ port, protocol: 'TCP' })) },
      { ports: [{ port: 4318, protocol: 'TCP' }] },
    ]);
    const oneFamily = await render({ networkPolicy: { exceptRanges: ['10.0.0.0/8'] } });
    const { egress: own } = (pick(oneFamily, 'NetworkPolicy', 'sidegate-deliver') as Json)['spec'];
    expect(own.at(-1).to).toEqual([{ ipBlock: { cidr: '0.0.0.0/0', except: ['10.0.0.0/8'] } }, { ipBlock: { cidr: '::/0' } }]);
    const without = await render({ networkPolicy: { enabled: false } });
    expect(ownOf(without).map(({ kind }) => kind)).not.toContain('NetworkPolicy');
  });

  test('is scraped under the name of its workload, in its namespace', async () => {
    const monitoring = { podMonitor: { enabled: true, interval: '15s' } };
    const objects = await render({ namespace: 'shop' }, { monitoring });
    expect(pick(objects, 'PodMonitor', 'sidegate-sidecars')).toBeDefined();
    const { namespaceSelector, selector, podMetricsEndpoints } = (pick(objects, 'PodMonitor', 'sidegate-deliver') as Json)[
      'spec'
    ];
    expect(namespaceSelector).toEqual({ matchNames: ['shop'] });
    expect((pick(objects, 'Deployment', 'sidegate-deliver') as Json)['spec'].template.metadata.labels).toMatchObject(
      selector.matchLabels,
    );
    expect(podMetricsEndpoints).toMatchObject([
      { port: 'admin', interval: '15s', relabelings: [{ targetLabel: 'workload', replacement: 'sidegate-deliver' }] },
    ]);
  });

  test.each<[string, Deliver, string]>([
    ['no config', { config: {} }, 'needs exactly one source of its config'],
    ['two configs', { existingConfigMap: 'a' }, 'it has deliver.config and deliver.existingConfigMap'],
    ['a config that sends nothing', { config: { log: {} } }, 'deliver.config has no section provider'],
    ['a queue of one process', { config: { provider: {} } }, 'deliver.config has no provider.queue.postgres'],
    [
      'a queue in a file',
      { config: { provider: { queue: { sqlite: { path: 'a' } } } } },
      'deliver.config has no provider.queue.postgres',
    ],
    ['an account without a name', { serviceAccount: { create: false } }, 'needs deliver.serviceAccount.name'],
  ])('is refused with a sentence for %s', async (_what, deliver, message) => {
    const { code, stderr } = await templateChart({ deliver: { enabled: true, config: CONFIG, ...deliver } });
    expect(stderr).toContain(message);
    expect(code).not.toBe(0);
  });

  test('is refused for an address range that is none', async () => {
    const { code, stderr } = await templateChart({
      deliver: { enabled: true, config: CONFIG, networkPolicy: { exceptRanges: ['10.0.0.0'] } },
    });
    expect(stderr).toContain('/deliver/networkPolicy/exceptRanges/0');
    expect(code).not.toBe(0);
  });
});
