import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { applyPatch, type Operation } from 'rfc6902';
import { describe, expect, test } from 'vitest';
import { parse, parseAllDocuments } from 'yaml';
import { parseConfig } from '../src/config/load/load.ts';
import { systemClock } from '../src/core/clock.ts';
import { warnOfVariables } from '../src/kubernetes/admission/advice.ts';
import { checkNetwork } from '../src/kubernetes/doctor/check-network.ts';
import type { Facts } from '../src/kubernetes/doctor/facts.ts';
import type { NetworkPolicy } from '../src/kubernetes/doctor/objects.ts';
import type { Workload } from '../src/kubernetes/doctor/workloads.ts';
import { injectPod } from '../src/kubernetes/injector/inject.ts';
import { toSidecarDefaults } from '../src/kubernetes/injector/injector-config.ts';

const ROOT = join(import.meta.dirname, '..');
const read = (file: string): string => readFileSync(join(ROOT, file), 'utf8');

const ANY_ROUTE = 'routes: [{ name: any, match: { path: / }, upstream: "http://127.0.0.1:3000", allow: anyone }]\n';
/** As the injector starts a sidecar. */
const IN_A_POD = { listen: ':8480', admin: ':8481', upstream: 'http://127.0.0.1:3000' };

describe('the docs for pods', () => {
  test.each(['docs/tutorials/kubernetes.md', 'chart/sidegate/README.md'])(
    'show a complete config for a pod in %s, with which an injected sidecar starts',
    (page) => {
      const blocks = [...read(page).matchAll(/```yaml(?: \S+)?\n(.*?)```/gs)].map(([, text = '']) => text);
      const config = blocks.find((text) => text.includes('routes:') && text.includes('../secrets/')) ?? '';
      expect(Object.keys(parse(config) as object)).not.toContain('listen');
      expect(config).not.toContain('upstream');
      const { config: gate, problems } = parseConfig('/etc/sidegate/config/gate.yaml', config, systemClock, {
        overrides: IN_A_POD,
      });
      expect(problems).toEqual([]);
      expect(warnOfVariables(gate, 'my-gate')).toEqual([]);
      const [, secret = ''] = /file: \.\.\/secrets\/([^/]+)\//.exec(config) ?? [];
      expect(read(page)).toContain(`kubectl create secret generic ${secret}`);
      expect(read(page)).toContain(`sidegate.dev/secrets: ${secret}`);
    },
  );

  test("of the chart show a Redis with password, CA and Sentinel that the gate accepts, from a Secret that the pod's annotation names", () => {
    const page = read('chart/sidegate/README.md');
    const blocks = [...page.matchAll(/```yaml\n(store:.*?)```/gs)].map(([, text = '']) => text);
    expect(blocks.join()).toMatch(/rediss:.*passwordFile:.*caFile:.*sentinel:/s);
    for (const text of blocks) {
      const { config, problems } = parseConfig('gate.yaml', text + ANY_ROUTE, systemClock);
      expect(problems).toEqual([]);
      expect(warnOfVariables(config, 'my-gate')).toEqual([]);
      expect(new Set([...text.matchAll(/\.\.\/secrets\/([^/]+)\//g)].map(([, secret]) => secret))).toEqual(new Set(['redis']));
    }
    expect(page).toMatch(/sidegate\.dev\/secrets: \S+, redis`/);
  });

  test('show a NetworkPolicy with which the doctor has no findings for the injected pod of the same page, and some without it', () => {
    const blocks = [...read('docs/injection.md').matchAll(/```yaml\n(.*?)```/gs)].map(([, text = '']) => text);
    const policy = parse(blocks.find((text) => text.includes('kind: NetworkPolicy')) ?? '') as NetworkPolicy;
    const [deployment] = parseAllDocuments(blocks[0] ?? '').map((document) => document.toJS() as { spec: { template: object } });
    const template = deployment?.spec.template ?? {};
    const context = { defaults: toSidecarDefaults('sidegate:1'), version: '1', kube: { major: 1, minor: 34 }, namespace: 'shop' };
    const injection = injectPod(template, context);
    applyPatch(template, 'patch' in injection ? ([...injection.patch] as Operation[]) : []);
    const judge = (items: readonly unknown[]): string[] =>
      checkNetwork(
        { namespace: 'shop', pods: [template] } as unknown as Workload,
        { networkPolicies: { items } } as unknown as Facts,
      ).map(({ code }) => code);
    expect(judge([])).toEqual(['no-network-policy']);
    expect(judge([{ ...policy, metadata: { ...policy.metadata, namespace: 'shop' } }])).toEqual([]);
  });

  test('of the injector use one namespace, in config and commands', () => {
    const page = read('docs/injector.md');
    const [, namespace] = /namespace: (\S+)/.exec(page) ?? [];
    expect(namespace).toBe('sidegate-system');
    const commands = page.match(/kubectl (?!create|apply -f).*/g) ?? [];
    expect(commands.length).toBeGreaterThan(0);
    for (const command of commands) expect(command).toMatch(/^kubectl -n sidegate-system /);
  });

  test.each(['docs/injection.md', 'docs/injector.md'])('have lines of readable length in %s, except in tables', (page) => {
    const prose = read(page)
      .split('\n')
      .filter((line) => !line.startsWith('|'));
    expect(prose.filter((line) => line.length > 150)).toEqual([]);
  });

  test('record decisions in one form: a number, and context before decision', () => {
    const files = readdirSync(join(ROOT, 'docs/adr')).sort();
    for (const [index, file] of files.entries()) {
      const text = read(join('docs/adr', file));
      expect(file).toMatch(new RegExp(`^${String(index + 1).padStart(4, '0')}-`));
      expect(text, file).toMatch(new RegExp(`^# ${index + 1}\\. .*\\n\\n\\*\\*Context\\.\\*\\* [^]*\\*\\*Decision\\.\\*\\*`));
    }
  });
});
