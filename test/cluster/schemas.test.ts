import { cpSync, readdirSync, readFileSync } from 'node:fs';
import { basename, join, resolve } from 'node:path';
import { Readable } from 'node:stream';
import { describe, expect, test } from 'vitest';
import { injectFiles } from '../../src/cli/inject.ts';
import { SCHEMA_VERSIONS } from '../prepare/kubernetes-schemas.ts';
import {
  CHART,
  HELM,
  HELM_3,
  isBuiltIn,
  type Rendered,
  type RenderOptions,
  renderChart,
  templateChart,
  toObjects,
} from '../support/chart.ts';
import { useFolder } from '../support/fixtures.ts';
import { recordIo } from '../support/io.ts';
import { loadSchemas, type Typed, type Validate } from '../support/kubernetes-schemas.ts';

const CI = readdirSync(join(CHART, 'ci')).map((name) => basename(name, '-values.yaml'));
const GOLDEN = resolve(import.meta.dirname, '..', 'golden', 'inject');
/** Objects for the injector; `denied.yaml` gets no sidecar. */
const INPUTS = readdirSync(GOLDEN).filter((name) => name.endsWith('.yaml') && name !== 'denied.yaml');
const folder = useFolder();

/** Policy mode needs 1.36. */
const fits = (name: string, version: string): boolean => name !== 'policy' || version === '1.36';
const toFiles = (name: string): string[] => [join(CHART, 'ci', `${name}-values.yaml`)];

/** What is wrong with objects; a kind that Kubernetes does not have is wrong, unless it belongs to another project. */
function validateAll(validate: Validate, objects: readonly Typed[]): string[] {
  const own = objects.filter(isBuiltIn);
  expect(own.length).toBeGreaterThan(0);
  return own.flatMap((object) => validate(object) ?? [`unknown kind ${object.apiVersion} ${object.kind}`]);
}

describe.each(SCHEMA_VERSIONS)('the schemas of Kubernetes %s', (version) => {
  const validate = loadSchemas(version);

  test.each([
    ['an unknown field', { replica: 2 }, 'Deployment/spec must NOT have additional properties: replica'],
    ['a wrong type', { replicas: '2' }, 'Deployment/spec/replicas must be integer'],
    ['a number that is too large', { replicas: 2 ** 31 }, 'Deployment/spec/replicas must be <= 2147483647'],
  ])('reject %s', (_what, fields, problem) => {
    const spec = { selector: { matchLabels: { app: 'a' } }, template: {}, ...fields };
    expect(validate({ apiVersion: 'apps/v1', kind: 'Deployment', spec } as Typed)).toEqual([problem]);
  });

  test('reject a missing field, also inside of a list', () => {
    const pod = { apiVersion: 'v1', kind: 'Pod', spec: { containers: [{ image: 'a' }] } };
    expect(validate(pod)).toEqual(["Pod/spec/containers/0 must have required property 'name'"]);
  });

  test('do not know removed kinds', () => {
    expect(validate({ apiVersion: 'policy/v1beta1', kind: 'PodDisruptionBudget' })).toBeUndefined();
  });

  test.each(CI.filter((name) => fits(name, version)))(
    'accept every object of the chart with the values of ci/%s',
    async (name) => {
      const objects = await renderChart({}, { files: toFiles(name), kubeVersion: `${version}.0`, tests: true });
      expect(validateAll(validate, objects)).toEqual([]);
    },
  );

  test('accept what the library chart renders', async () => {
    const web = join(folder, `web-${version}`);
    cpSync(resolve(import.meta.dirname, '..', 'support', 'charts', 'web'), web, { recursive: true });
    cpSync(resolve(CHART, '..', 'sidegate-lib'), join(web, 'charts', 'sidegate-lib'), { recursive: true });
    const sidegate = { image: 'registry.example.com/sidegate:1', config: 'web-gate', appPort: 3000 };
    const { stdout, stderr } = await templateChart({ sidegate }, { chart: web, kubeVersion: `${version}.0` });
    expect(stderr).toBe('');
    expect(validateAll(validate, toObjects(stdout))).toEqual([]);
  });

  test.each(INPUTS)('accept what the injector adds to %s', async (name) => {
    const text = readFileSync(join(GOLDEN, name), 'utf8');
    const { io, stdout } = recordIo({ stdin: Readable.from([text]) as NodeJS.ReadableStream });
    const config = join(GOLDEN, 'config/plain.yaml');
    await injectFiles({ config, filename: ['-'], namespace: 'default', kubeVersion: version, format: 'yaml' }, io);
    expect(stdout()).toContain('readyz');
    // Some inputs have fields that Kubernetes does not know.
    const before = validateAll(validate, toObjects(text));
    expect(validateAll(validate, toObjects(stdout())).filter((problem) => !before.includes(problem))).toEqual([]);
  });
});

describe('Helm 3 and Helm 4', () => {
  const render = (options: RenderOptions): Promise<readonly Rendered[]> => renderChart({}, { ...options, tests: true });

  test.each(CI)('render the same objects with the values of ci/%s, except when a hook is deleted', async (name) => {
    for (const version of SCHEMA_VERSIONS.filter((each) => fits(name, each))) {
      const options = { files: toFiles(name), kubeVersion: `${version}.0` };
      const [older, newer] = [await render({ ...options, program: HELM_3 }), await render({ ...options, program: HELM })];
      expect(newer.length).toBeGreaterThan(3);
      expect(toComparable(older)).toEqual(toComparable(newer));
    }
  });
});

/** Helm sorts kinds that it does not know in two ways, and deletes hooks at two times, which decides their policy. */
function toComparable(objects: readonly Rendered[]): object {
  const rows = objects.map(({ metadata, ...rest }) => {
    const annotations = Object.entries(metadata.annotations ?? {}).filter(([key]) => !/^helm\.sh\/hook-.*-policy$/.test(key));
    const object = { ...rest, metadata: { ...metadata, annotations: Object.fromEntries(annotations) } };
    return [`${rest.kind} ${metadata.name}`, object] as const;
  });
  expect(new Set(rows.map(([key]) => key)).size).toBe(objects.length);
  return Object.fromEntries(rows);
}
