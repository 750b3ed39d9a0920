import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { createBom } from '../scripts/sbom.ts';

const ROOT = join(import.meta.dirname, '..');
/** What the sources import. */
const BUNDLED = [
  ...['@prometheus-io/client', 'commander', 'ioredis', 'jose', 'pg', 'pino', 'preact'],
  ...['preact-render-to-string', 'yaml', 'zod'],
];
const manifest = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as {
  name: string;
  version: string;
  dependencies: Record<string, string>;
  devDependencies: Record<string, string>;
};

test('lists exactly the installed or bundled packages, with version, licence and package URL', async () => {
  const bom = await createBom();
  const names = bom.components.map(nameOf);
  expect([bom.bomFormat, bom.specVersion]).toEqual(['CycloneDX', '1.5']);
  expect(bom.metadata.component).toMatchObject({ name: manifest.name, version: manifest.version });
  for (const dependency of Object.keys(manifest.dependencies)) expect(names).toContain(dependency);
  for (const dependency of BUNDLED) expect(names).toContain(dependency);
  for (const dependency of Object.keys(manifest.devDependencies))
    if (!BUNDLED.includes(dependency)) expect(names).not.toContain(dependency);
  for (const component of bom.components) {
    expect(component.version, component.name).toMatch(/^\d+\.\d+\.\d+/);
    expect(component.purl, component.name).toMatch(/^pkg:npm\//);
    expect(component.licenses?.length, component.name).toBeGreaterThan(0);
  }
});

test('names only listed packages as dependencies of others', async () => {
  const bom = await createBom();
  const refs = new Set([bom.metadata.component, ...bom.components].map((component) => component['bom-ref']));
  expect(bom.components.length).toBeGreaterThan(Object.keys(manifest.dependencies).length);
  for (const { ref, dependsOn } of bom.dependencies) for (const each of [ref, ...dependsOn]) expect(refs).toContain(each);
});

test('is the same for every build', async () => {
  const [first, second] = [await createBom(), await createBom()];
  expect(second).toEqual(first);
  expect(first.serialNumber).toMatch(/^urn:uuid:[\da-f]{8}-[\da-f]{4}-8[\da-f]{3}-8[\da-f]{3}-[\da-f]{12}$/);
  expect(first.metadata).not.toHaveProperty('timestamp');
}, 60_000);

/** The name with its scope, as package.json writes it. */
function nameOf(component: { readonly 'bom-ref': string }): string {
  return component['bom-ref'].slice(0, component['bom-ref'].lastIndexOf('@'));
}
