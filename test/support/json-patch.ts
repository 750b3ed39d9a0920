/** Applies the JSON patches of the injector, as the API server does (RFC 6902). */
import type { PatchOperation } from '../../src/injector/patch.ts';

type Node = Record<string, unknown> | unknown[];

/** A copy of `object` with the patch on it. */
export function applyPatch<T>(object: T, patch: readonly PatchOperation[]): T {
  const copy = structuredClone(object);
  for (const operation of patch) {
    const steps = operation.path
      .slice(1)
      .split('/')
      .map((step) => step.replaceAll('~1', '/').replaceAll('~0', '~'));
    const last = steps.pop() ?? '';
    const parent = steps.reduce<Node>((node, step) => (node as Record<string, Node>)[step] as Node, copy as Node);
    if (Array.isArray(parent) && operation.op === 'add')
      parent.splice(last === '-' ? parent.length : Number(last), 0, operation.value);
    else if (operation.op === 'remove') Reflect.deleteProperty(parent, last);
    else (parent as Record<string, unknown>)[last] = operation.value;
  }
  return copy;
}
