/** Raises the resources of a whole pod (`spec.resources`) by those of the sidecar: the API server denies containers that exceed them. */
import type { Work } from './plan.ts';
import { has, objectAt, type Raw } from './raw.ts';

/** A Kubernetes quantity: a decimal number with a suffix or an exponent. */
const QUANTITY = /^\+?([0-9]{1,18})?(?:\.([0-9]{0,9}))?(?:([numkMGTPE]|[KMGTPE]i)|[eE]\+?([0-9]{1,2}))?$/;
const DECIMAL_SUFFIXES = ['n', 'u', 'm', '', 'k', 'M', 'G', 'T', 'P', 'E'];
const BINARY_SUFFIXES = ['', 'Ki', 'Mi', 'Gi', 'Ti', 'Pi', 'Ei'];
const FRACTION_DIGITS = 9;
const NANO = 10n ** 9n;
const MEBIBYTE = 1n << 20n;

/** Adds the sidecar's requests and limits to those that the pod sets for all of its containers; the others stay unset. */
export function raiseResources({ pod, plan, patch, findings }: Work): void {
  const resources = objectAt(objectAt(pod, 'spec'), 'resources');
  const added = [
    ['requests', 'cpu', plan.cpuRequest],
    ['requests', 'memory', plan.memoryRequest],
    // Without a CPU limit, the sidecar still needs room for its request.
    ['limits', 'cpu', plan.cpuLimit ?? plan.cpuRequest],
    ['limits', 'memory', plan.memoryLimit],
  ] as const;
  for (const [list, kind, own] of added) {
    const current: Raw = objectAt(resources, list);
    if (!has(current, kind)) continue;
    const sum = addQuantities(String(current[kind]), own, kind);
    if (sum === undefined) findings.deny('malformed', `not a valid pod: spec.resources.${list}.${kind} is not a quantity`);
    else patch.set(['spec', 'resources', list], current, kind, sum);
  }
}

/** The sum of two quantities, rounded up to what Kubernetes counts: millicores or bytes. Undefined if one is not a quantity. */
export function addQuantities(one: string, other: string, kind: 'cpu' | 'memory'): string | undefined {
  const [first, second] = [toNanos(one), toNanos(other)];
  if (first === undefined || second === undefined) return undefined;
  const sum = first + second;
  if (kind === 'cpu') return `${roundUp(sum, NANO / 1000n)}m`;
  const bytes = roundUp(sum, NANO);
  return bytes % MEBIBYTE === 0n ? `${bytes / MEBIBYTE}Mi` : String(bytes);
}

function toNanos(text: string): bigint | undefined {
  const [match, whole = '', fraction = '', suffix = '', exponent = '0'] = QUANTITY.exec(text) ?? [];
  if (match === undefined || whole + fraction === '') return undefined;
  const digits = BigInt(`${whole}${fraction.padEnd(FRACTION_DIGITS, '0')}`);
  const binary = BINARY_SUFFIXES.indexOf(suffix);
  if (binary > 0) return digits << BigInt(10 * binary);
  const power = DECIMAL_SUFFIXES.indexOf(suffix) - DECIMAL_SUFFIXES.indexOf('');
  return power < 0 ? roundUp(digits, 1000n ** BigInt(-power)) : digits * 1000n ** BigInt(power) * 10n ** BigInt(exponent);
}

function roundUp(value: bigint, unit: bigint): bigint {
  return (value + unit - 1n) / unit;
}
