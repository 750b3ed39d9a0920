/** A control plane in the hands of one test file: requests, objects, users, and the end of all that was made. */
import { inject } from 'vitest';
import { parseAllDocuments } from 'yaml';
import { until } from '../gate.ts';
import type { Connection, Version } from './control-plane.ts';
import { type Answer, type AskOptions, ask, type Kube } from './kube-request.ts';
import { toKubeconfig } from './kubeconfig.ts';

/** What `apply` may be asked. */
export interface ApplyOptions {
  /** For objects that name no namespace. */
  readonly namespace?: string;
  /** The API server judges and defaults, and stores nothing. */
  readonly isDryRun?: boolean;
  readonly token?: string;
}

interface Resource {
  readonly plural: string;
  readonly isNamespaced: boolean;
}

const MANAGER = 'sidegate-test';

/** Gets the control plane of a version, which is started where no test asked for it before. */
export async function useCluster(version: Version = '1.36'): Promise<Cluster> {
  const answer = await fetch(`${inject('clusterBroker')}/${version}`);
  if (!answer.ok) throw new Error(await answer.text());
  return new Cluster((await answer.json()) as Connection);
}

/** Requests go to the real API server; `cleanUp` in afterAll removes what was made through it. */
export class Cluster {
  readonly connection: Connection;
  readonly #resources = new Map<string, Promise<readonly (Resource & { kind: string })[]>>();
  readonly #made: string[] = [];
  #names = 0;

  constructor(connection: Connection) {
    this.connection = connection;
  }

  /** Asks once, as admin where no token is given; any status is an answer. */
  request(method: string, path: string, body?: unknown, options?: AskOptions): Promise<Answer> {
    return ask(this.connection, method, path, body, options);
  }

  /** Asks once and gives the body; a status from 400 up is an error with the API server's message. */
  async ok(method: string, path: string, body?: unknown, options?: AskOptions): Promise<Kube> {
    const answer = await this.request(method, path, body, options);
    if (answer.status >= 400)
      throw new Error(`${method} ${path}: ${answer.status} ${answer.body?.message ?? JSON.stringify(answer.body)}`);
    return answer.body;
  }

  /** A new namespace with these labels, where pods can be made at once. */
  async createNamespace(labels: Readonly<Record<string, string>> = {}, prefix = 'test'): Promise<string> {
    const name = `${prefix}-${process.pid.toString(36)}-${Date.now().toString(36)}-${(this.#names++).toString(36)}`;
    await this.ok('POST', '/api/v1/namespaces', { apiVersion: 'v1', kind: 'Namespace', metadata: { name, labels } });
    this.#made.push(`/api/v1/namespaces/${name}`);
    const accounts = `/api/v1/namespaces/${name}/serviceaccounts`;
    if (!this.connection.hasControllers)
      await this.ok('POST', accounts, { apiVersion: 'v1', kind: 'ServiceAccount', metadata: { name: 'default' } });
    await until(async () => (await this.request('GET', `${accounts}/default`)).status === 200);
    return name;
  }

  /** Creates an object; a denial is an answer. Removed by `cleanUp`. */
  async create(object: Kube, options: ApplyOptions = {}): Promise<Answer> {
    const collection = await this.#toCollection(object, options.namespace);
    const query = `?fieldValidation=Strict${options.isDryRun === true ? '&dryRun=All' : ''}`;
    const answer = await this.request('POST', `${collection}${query}`, object, options);
    if (answer.status < 400 && options.isDryRun !== true) this.#made.push(`${collection}/${answer.body.metadata.name}`);
    return answer;
  }

  /** Applies an object on the server's side with strict field validation. */
  async apply(object: Kube, options: ApplyOptions = {}): Promise<Answer> {
    const path = await this.pathOf(object, options.namespace);
    const query = `?fieldManager=${MANAGER}&force=true&fieldValidation=Strict${options.isDryRun === true ? '&dryRun=All' : ''}`;
    const answer = await this.request('PATCH', path + query, object, {
      contentType: 'application/apply-patch+yaml',
      ...(options.token !== undefined && { token: options.token }),
    });
    if (answer.status < 400 && options.isDryRun !== true) this.#made.push(path);
    return answer;
  }

  /** Applies every document of a YAML text (what `helm template` prints), namespaces first; the first refusal is an error. */
  async applyAll(text: string, options: ApplyOptions = {}): Promise<Kube[]> {
    const objects = toObjects(text).sort((a, b) => Number(b.kind === 'Namespace') - Number(a.kind === 'Namespace'));
    const applied: Kube[] = [];
    for (const object of objects) {
      const { status, body } = await this.apply(object, options);
      if (status >= 400) throw new Error(`${object.kind} ${object.metadata?.name}: ${status} ${body?.message ?? body}`);
      applied.push(body);
    }
    return applied;
  }

  /** Where an object lives; its kind is looked up in the API server's own discovery. */
  async pathOf(object: Kube, namespace?: string): Promise<string> {
    return `${await this.#toCollection(object, namespace)}/${object.metadata.name}`;
  }

  /** A token by which requests are those of a service account. */
  async serviceAccountToken(namespace: string, name: string): Promise<string> {
    const path = `/api/v1/namespaces/${namespace}/serviceaccounts/${name}/token`;
    const spec = { apiVersion: 'authentication.k8s.io/v1', kind: 'TokenRequest', spec: { expirationSeconds: 3_600 } };
    return (await this.ok('POST', path, spec)).status.token as string;
  }

  /** A kubeconfig as text, for admin or the user of a token. */
  kubeconfig(token = this.connection.token, namespace = 'default'): string {
    return toKubeconfig({ ...this.connection, token }, namespace);
  }

  /** The value of one series of the API server's own metrics, given as a beginning of the line; sums where several fit. */
  async metric(beginning: string): Promise<number> {
    const text: string = await this.ok('GET', '/metrics');
    const lines = text.split('\n').filter((line) => line.startsWith(beginning));
    return lines.reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(' ') + 1)), 0);
  }

  /** Removes all that was made through it, the latest first; what is gone already is fine. */
  async cleanUp(): Promise<void> {
    for (const path of this.#made.splice(0).reverse())
      await this.request('DELETE', `${path}?gracePeriodSeconds=0&propagationPolicy=Background`);
  }

  async #toCollection(object: Kube, namespace = 'default'): Promise<string> {
    const group = String(object.apiVersion).includes('/') ? `/apis/${object.apiVersion}` : `/api/${object.apiVersion}`;
    const known =
      this.#resources.get(group) ??
      this.ok('GET', group).then((list) =>
        (list.resources as Kube[])
          .filter((each) => !String(each.name).includes('/'))
          .map((each) => ({ kind: each.kind, plural: each.name, isNamespaced: each.namespaced })),
      );
    this.#resources.set(group, known);
    const resource = (await known).find(({ kind }) => kind === object.kind);
    if (resource === undefined) throw new Error(`the API server knows no ${object.kind} in ${object.apiVersion}`);
    if (!resource.isNamespaced) return `${group}/${resource.plural}`;
    return `${group}/namespaces/${object.metadata?.namespace ?? namespace}/${resource.plural}`;
  }
}

/** The objects of a YAML text with any number of documents; empty ones are none. */
export function toObjects(text: string): Kube[] {
  return parseAllDocuments(text).flatMap((document) => {
    if ('errors' in document && document.errors.length > 0) throw document.errors[0];
    const object: Kube = document.toJS();
    return object === null || object === undefined ? [] : [object];
  });
}
