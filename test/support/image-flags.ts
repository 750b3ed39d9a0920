/** The options of Node and the variables of the allocator in the image, for tests that start the gate. */
import { readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';

const DOCKERFILE = join(resolve(import.meta.dirname, '..', '..'), 'Dockerfile');
/** Node 24 knows no permission for the network: it allows it always. */
const SINCE_NODE_25 = '--allow-net';

/** All of them, except one that this version of Node does not have. */
export function readImageFlags(version = process.versions.node): string[] {
  const [, entrypoint = '[]'] = /^ENTRYPOINT (.+)$/m.exec(readFileSync(DOCKERFILE, 'utf8')) ?? [];
  const isOld = Number(version.split('.')[0]) < 25;
  return (JSON.parse(entrypoint) as string[]).filter((word) => word.startsWith('-') && !(isOld && word === SINCE_NODE_25));
}

/** Those of the permission model; the limit of the heap is for containers. */
export function readPermissionFlags(): string[] {
  return readImageFlags().filter((flag) => !flag.startsWith('--max-'));
}

/** The variables that configure the allocator of the C library, which decides how much memory the kernel gets back. */
export function readImageAllocator(): Record<string, string> {
  const variables = readFileSync(DOCKERFILE, 'utf8').matchAll(/\b(MALLOC_\w+)=(\d+)/g);
  return Object.fromEntries(Array.from(variables, ([, name, value]) => [name, value] as const));
}
