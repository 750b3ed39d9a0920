/**
 * The schemas of objects for the tests: the OpenAPI documents of several versions of Kubernetes, and those of the other projects that the examples
 * use. All are from the Go modules of their projects.
 */
import { spawnSync } from 'node:child_process';
import { copyFileSync, existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { toBinFolder } from './cluster-tools.ts';

/** The releases by minor version, with the checksums of their modules as in a go.sum. */
const RELEASES = {
  '1.33': { release: 'v1.33.13', sum: 'h1:bmH31xUdSzeA5vk0wZAK9MZp11mdLuzUSeKk0qN3hPQ=' },
  '1.34': { release: 'v1.34.2', sum: 'h1:WQdDvYJazkmkwSncgNwGvVtaCt4TYXIU3wSMRgvp3MI=' },
  '1.35': { release: 'v1.35.4', sum: 'h1:o/8dBC/pHVpYoGV4OAIytAlNPZbdYVTXJHoYvXC4qzM=' },
  '1.36': { release: 'v1.36.3', sum: 'h1:qDQdoMiluAE2Eab6Fa52YV+WjiGz9mZFFoagEA6cI+o=' },
} as const;

/** A minor version whose schemas the tests have. */
export type SchemaVersion = keyof typeof RELEASES;

export const SCHEMA_VERSIONS = Object.keys(RELEASES) as SchemaVersion[];

/** Files of other projects, with the checksums of their modules. */
const FOREIGN = [
  {
    module: 'sigs.k8s.io/gateway-api@v1.6.3',
    sum: 'h1:lKpJa5bGlraC/QeACvCpsHLdmO6y0iKfzVl6gzaFEYc=',
    files: ['gateways', 'httproutes'].map((plural) => `config/crd/standard/gateway.networking.k8s.io_${plural}.yaml`),
  },
  {
    module: 'github.com/external-secrets/external-secrets@v1.3.2',
    sum: 'h1:u2J8RjlHIeF0oZCqtl92adI/uZWUwOesJIDkfql6LqQ=',
    files: ['externalsecrets', 'secretstores'].map((plural) => `config/crds/bases/external-secrets.io_${plural}.yaml`),
  },
  {
    module: 'github.com/argoproj/argo-cd/v3@v3.4.13',
    sum: 'h1:kmnF4nE5SQ83OhtdX6DMmLSpH0eRIa1gNYdCLNHqB+A=',
    files: ['manifests/crds/application-crd.yaml'],
  },
  {
    module: 'github.com/compose-spec/compose-go/v2@v2.16.2',
    sum: 'h1:pTp1DqQwJzFd85GzlWsSszKA1ABrV/ySqsClujIcWA8=',
    files: ['schema/compose-spec.json'],
  },
];

const toFolder = (): string => join(dirname(toBinFolder()), 'schemas');

/** Returns the file with the definitions of a version. */
export function toSchemaFile(version: SchemaVersion): string {
  return join(toFolder(), `kubernetes-${RELEASES[version].release}.json`);
}

/** Returns the files of other projects: custom resource definitions, and the schema of Compose files. */
export function listForeignFiles(): string[] {
  return FOREIGN.flatMap(({ module, files }) => files.map((file) => toForeignFile(module, file)));
}

function toForeignFile(module: string, file: string): string {
  return join(toFolder(), module.replaceAll('/', '-'), basename(file));
}

/** Downloads the documents that are missing. Returns the reason of a failure, in one line. */
export function prepareSchemas(): string | undefined {
  for (const version of SCHEMA_VERSIONS) {
    const file = toSchemaFile(version);
    if (existsSync(file)) continue;
    const { release, sum } = RELEASES[version];
    const source = download(`k8s.io/kubernetes@${release}`, sum);
    if ('problem' in source) return `the schemas of Kubernetes ${version}: ${source.problem}`;
    mkdirSync(dirname(file), { recursive: true });
    const { definitions } = JSON.parse(readFileSync(join(source.folder, 'api', 'openapi-spec', 'swagger.json'), 'utf8'));
    writeFileSync(`${file}.${process.pid}`, JSON.stringify({ definitions }));
    renameSync(`${file}.${process.pid}`, file);
  }
  for (const { module, sum, files } of FOREIGN) {
    const missing = files.filter((file) => !existsSync(toForeignFile(module, file)));
    const source = missing.length === 0 ? { folder: '' } : download(module, sum);
    if ('problem' in source) {
      console.warn(`${module}: ${source.problem}; the examples are not compared with it`);
      continue;
    }
    for (const file of missing) {
      const target = toForeignFile(module, file);
      mkdirSync(dirname(target), { recursive: true });
      copyFileSync(join(source.folder, file), `${target}.${process.pid}`);
      renameSync(`${target}.${process.pid}`, target);
    }
  }
  return undefined;
}

function download(module: string, sum: string): { readonly folder: string } | { readonly problem: string } {
  const { stdout, stderr } = spawnSync('go', ['mod', 'download', '-json', module], {
    encoding: 'utf8',
    env: { ...process.env, GOWORK: 'off', GOFLAGS: '' },
  });
  if (!stdout) return { problem: `go mod download failed: ${stderr}` };
  const { Dir: folder, Sum: actual, Error: error }: Record<string, string | undefined> = JSON.parse(stdout);
  if (folder === undefined) return { problem: `go mod download failed: ${error}` };
  return actual === sum ? { folder } : { problem: `the checksum of ${module} is ${actual}, expected ${sum}` };
}
