/** `sidegate inject`: injects the sidecar into manifests, like the admission webhook. */

import { usageError } from '../core/errors.ts';
import { formatProblem } from '../core/problem.ts';
import { injectPod } from '../kubernetes/injector/inject.ts';
import { loadInjectorConfig, type SidecarDefaults, toSidecarDefaults } from '../kubernetes/injector/injector-config.ts';
import { INJECT_LABEL } from '../kubernetes/injector/names.ts';
import type { InjectContext, Injection, KubeVersion } from '../kubernetes/injector/outcome.ts';
import { type PatchOperation, type PatchPath, toPointer } from '../kubernetes/injector/patch.ts';
import { objectAt, type Raw } from '../kubernetes/injector/raw.ts';
import { type Manifest, parseManifests } from '../kubernetes/manifests/documents.ts';
import { findBypasses, findOtherRequests, findWorkloads, type ManifestWorkload } from '../kubernetes/manifests/workloads.ts';
import { readInput } from './input.ts';
import { EXIT, type Io } from './io.ts';
import { readVersion } from './version.ts';

const MAX_MANIFEST_BYTES = 16 * 1024 * 1024;

/** Options of the command. */
export interface InjectOptions {
  readonly filename: readonly string[];
  readonly config?: string;
  readonly namespace: string;
  readonly kubeVersion: string;
  readonly format: string;
}

interface Injected {
  readonly manifest: Manifest;
  readonly workload: ManifestWorkload;
  readonly patch: readonly PatchOperation[];
}

/** Prints nothing if a pod is denied, so that a pipe into kubectl cannot apply a part of the input. */
export async function injectFiles(options: InjectOptions, io: Io): Promise<number> {
  const kube = toKubeVersion(options.kubeVersion);
  const defaults = await readDefaults(options.config, io);
  if (defaults === undefined) return EXIT.failed;
  const context = { defaults, version: readVersion(), kube, namespace: options.namespace, isOffline: true };
  const manifests: Manifest[] = [];
  const results: (Injected | 'skipped' | 'denied')[] = [];
  for (const file of options.filename) {
    const read = await readManifests(file, io);
    if (read.isBroken) results.push('denied');
    for (const manifest of read.manifests) {
      manifests.push(manifest);
      for (const workload of findWorkloads(manifest.value)) results.push(injectOne({ file, manifest, workload }, context, io));
      for (const path of findOtherRequests(manifest.value)) results.push(denyOther(toDocument(file, manifest), path, io));
    }
  }
  if (results.includes('denied')) return EXIT.failed;
  const injected = results.filter((result) => typeof result === 'object');
  if (results.length === 0) io.stderr('sidegate: the input contains no pods or pod templates\n');
  io.stdout(print(options, manifests, injected));
  const values = manifests.map((manifest) => manifest.toValue());
  for (const bypass of findBypasses(values, context)) io.stderr(`${bypass}\n`);
  return EXIT.ok;
}

interface FoundWorkload {
  readonly file: string;
  readonly manifest: Manifest;
  readonly workload: ManifestWorkload;
}

function injectOne({ file, manifest, workload }: FoundWorkload, context: InjectContext, io: Io): Injected | 'skipped' | 'denied' {
  const namespace = workload.namespace ?? context.namespace;
  const { pod, isJob, template } = workload;
  const injection = injectPod(pod, { ...context, namespace, isJob, ...(template === undefined ? {} : { template }) });
  const place = toPlace(file, manifest, workload);
  if (injection.outcome === 'skipped' && injection.reason === 'not_labelled' && isLabeled(workload)) {
    io.stderr(
      `${place}: denied: ${INJECT_LABEL} has no effect outside the pod template; move it into the metadata of the pod template, or remove it\n`,
    );
    return 'denied';
  }
  report(injection, place, io);
  if (injection.outcome === 'injected') return { manifest, workload, patch: injection.patch };
  return injection.outcome === 'denied' ? 'denied' : 'skipped';
}

/** Whether the label is on the workload, or on what else is around its pod template, such as a jobTemplate: a common mistake. */
function isLabeled({ object, podPath, pod }: ManifestWorkload): boolean {
  if (objectAt(objectAt(pod, 'metadata'), 'labels')[INJECT_LABEL] !== undefined) return false;
  return podPath.some((_, length) => {
    const around = podPath.slice(0, length).reduce<Raw>((from, step) => objectAt(from, String(step)), object);
    return objectAt(objectAt(around, 'metadata'), 'labels')[INJECT_LABEL] === 'true';
  });
}

/** Nothing may be printed: the pods would run without the sidecar that they request. */
function denyOther(document: string, path: PatchPath, io: Io): 'denied' {
  io.stderr(
    `${document}: ${path.join('.')}: denied: ${INJECT_LABEL} requests the sidecar where this command does not find a pod template; let the injector in the cluster inject it, and leave this document out of the input, or remove the label\n`,
  );
  return 'denied';
}

async function readManifests(file: string, io: Io): Promise<{ manifests: readonly Manifest[]; isBroken: boolean }> {
  const read = parseManifests(toShown(file), (await readInput(file, io, 'manifests', MAX_MANIFEST_BYTES)).toString('utf8'));
  if (!('problems' in read)) return { manifests: read, isBroken: false };
  for (const problem of read.problems) io.stderr(`${formatProblem(problem)}\n`);
  return { manifests: [], isBroken: true };
}

async function readDefaults(file: string | undefined, io: Io): Promise<SidecarDefaults | undefined> {
  if (file === undefined) return toSidecarDefaults(`ghcr.io/sidegate/sidegate:${readVersion()}`);
  const { config, problems } = await loadInjectorConfig(file);
  for (const problem of problems) io.stderr(`${formatProblem(problem)}\n`);
  return config?.sidecar;
}

/** `1.34`, `v1.34.2`, `1.34+`. */
function toKubeVersion(text: string): KubeVersion {
  const [, major, minor] = /^v?([0-9]{1,2})\.([0-9]{1,3})(?:[.+-].*)?$/.exec(text) ?? [];
  if (major === undefined || minor === undefined) throw usageError(`--kube-version ${text} is not a version such as 1.34`);
  return { major: Number(major), minor: Number(minor) };
}

const toShown = (file: string): string => (file === '-' ? '<stdin>' : file);

function toPlace(file: string, manifest: Manifest, { kind, name, objectPath, podPath }: ManifestWorkload): string {
  const path = [...objectPath, ...podPath].join('.');
  return `${toDocument(file, manifest)}: ${kind}/${name}${path === '' ? '' : ` ${path}`}`;
}

function toDocument(file: string, { line, number }: Manifest): string {
  return `${toShown(file)}:${line}: document ${number}`;
}

function report(injection: Injection, place: string, io: Io): void {
  switch (injection.outcome) {
    case 'denied':
      io.stderr(`${place}: denied: ${injection.message}\n`);
      return;
    case 'skipped':
      io.stderr(`${place}: skipped: ${injection.message}\n`);
      return;
    case 'injected':
      io.stderr(`${place}: injected: ${injection.summary}\n`);
      for (const warning of injection.warnings) io.stderr(`${place}: warning: ${warning}\n`);
  }
}

function print({ format, namespace }: InjectOptions, manifests: readonly Manifest[], injected: readonly Injected[]): string {
  for (const { manifest, workload, patch } of injected) manifest.apply([...workload.objectPath, ...workload.podPath], patch);
  if (format === 'patch') return printPatches(injected, namespace);
  if (format === 'yaml') return join(manifests.map((manifest) => manifest.toText()));
  const values = manifests.map((manifest) => manifest.toValue()).filter((value) => value !== null);
  const value = values.length === 1 ? values[0] : { apiVersion: 'v1', kind: 'List', items: values };
  return `${JSON.stringify(value, undefined, 2)}\n`;
}

/** Adds a separator between the documents of different files. It is at the start of a line. */
function join(texts: readonly string[]): string {
  return texts.reduce((all, text) => {
    if (all === '' || text === '') return all + text;
    return `${all}${all.endsWith('\n') ? '' : '\n'}${/^[\r\n]*---(?:\s|$)/.test(text) ? '' : '---\n'}${text}`;
  }, '');
}

/** A single patch has the format of `kubectl patch --type=json -p`; of several, each line also names its object. */
function printPatches(injected: readonly Injected[], namespace: string): string {
  const patches = injected.map(({ workload, patch }) => ({
    apiVersion: workload.apiVersion,
    kind: workload.kind,
    namespace: workload.namespace ?? namespace,
    name: workload.name,
    patch: patch.map((operation) => ({ ...operation, path: toPointer(workload.podPath) + operation.path })),
  }));
  const [first, second] = patches;
  if (first !== undefined && second === undefined) return `${JSON.stringify(first.patch)}\n`;
  return patches.map((patch) => `${JSON.stringify(patch)}\n`).join('');
}
