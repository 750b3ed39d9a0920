/** The schemas of Kubernetes' objects for the tests: the OpenAPI documents of several versions, from the Go modules of Kubernetes. */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
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

/** Returns the file with the definitions of a version. */
export function toSchemaFile(version: SchemaVersion): string {
  return join(dirname(toBinFolder()), 'schemas', `kubernetes-${RELEASES[version].release}.json`);
}

/** Downloads the documents that are missing. Returns the reason of a failure, in one line. */
export function prepareSchemas(): string | undefined {
  for (const version of SCHEMA_VERSIONS) {
    const file = toSchemaFile(version);
    if (existsSync(file)) continue;
    const source = download(version);
    if ('problem' in source) return `the schemas of Kubernetes ${version}: ${source.problem}`;
    mkdirSync(dirname(file), { recursive: true });
    const { definitions } = JSON.parse(readFileSync(join(source.folder, 'api', 'openapi-spec', 'swagger.json'), 'utf8'));
    writeFileSync(`${file}.${process.pid}`, JSON.stringify({ definitions }));
    renameSync(`${file}.${process.pid}`, file);
  }
  return undefined;
}

function download(version: SchemaVersion): { readonly folder: string } | { readonly problem: string } {
  const { release, sum } = RELEASES[version];
  const { stdout, stderr } = spawnSync('go', ['mod', 'download', '-json', `k8s.io/kubernetes@${release}`], {
    encoding: 'utf8',
    env: { ...process.env, GOWORK: 'off', GOFLAGS: '' },
  });
  if (!stdout) return { problem: `go mod download failed: ${stderr}` };
  const { Dir: folder, Sum: actual, Error: error }: Record<string, string | undefined> = JSON.parse(stdout);
  if (folder === undefined) return { problem: `go mod download failed: ${error}` };
  return actual === sum ? { folder } : { problem: `the checksum of ${release} is ${actual}, expected ${sum}` };
}
