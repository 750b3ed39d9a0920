/** The options of Node in the image's ENTRYPOINT, for tests that start the gate. */
import { readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';

const DOCKERFILE = join(resolve(import.meta.dirname, '..', '..'), 'Dockerfile');
/** Node 24 knows no permission for the network: it allows it always. */
const SINCE_NODE_25 = '--allow-net';

/** All of them, except one that this Node does not have. */
export function readImageFlags(): string[] {
  const [, entrypoint = '[]'] = /^ENTRYPOINT (.+)$/m.exec(readFileSync(DOCKERFILE, 'utf8')) ?? [];
  const isOld = Number(process.versions.node.split('.')[0]) < 25;
  return (JSON.parse(entrypoint) as string[]).filter((word) => word.startsWith('-') && !(isOld && word === SINCE_NODE_25));
}

/** Those of the permission model; the limit of the heap is for containers. */
export function readPermissionFlags(): string[] {
  return readImageFlags().filter((flag) => !flag.startsWith('--max-'));
}
