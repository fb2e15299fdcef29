(** Lemma 3: soft heads that span the shifts, as corrected in book/spans.md.

    Equations (16) and (17), appendix D; attnconv.theory.expressivity. *)

From mathcomp Require Import all_ssreflect all_algebra perm.
From AttnConv Require Import Attention Lemma1.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import GRing.Theory.
Local Open Scope ring_scope.

(** The layer with the attention [a], which does not depend on the image, expresses every kernel
    over [Delta]: at every interior query, for every image. *)
Definition expresses (F : comRingType) N Din Dh Dout (S : seq pixel) (Delta : seq shift)
    (a : 'I_N -> pixel -> pixel -> F) : Prop :=
  forall (W : shift -> 'M_(Din, Dout)) b,
  exists (Wval : 'I_N -> 'M_(Din, Dh)) (Wout : 'M_(N * Dh, Dout)) bout,
  forall X q, interior S Delta q -> mhsa S a Wval Wout bout X q = conv Delta W b X q.

Section Lemma3.
Variables (F : fieldType) (N : nat) (S : seq pixel) (Delta : seq shift).
Hypotheses (S_uniq : uniq S) (Delta_uniq : uniq Delta).
Implicit Type a : 'I_N -> pixel -> pixel -> F.

(** [E_q] and [A_q]: a row for each shift and for each head, a column for each pixel. *)
Definition one_hot_maps (q : pixel) : 'M[F]_(size Delta, size S) :=
  \matrix_(i, t) (S`_t == q + Delta`_i)%:R.
Definition head_maps n (a : 'I_n -> pixel -> pixel -> F) (q : pixel) : 'M[F]_(n, size S) :=
  \matrix_(h, t) a h q S`_t.

Lemma shift_inj : injective (fun i : 'I_(size Delta) => Delta`_i).
Proof. by move=> i j /eqP; rewrite nth_uniq // => /eqP /val_inj. Qed.

Lemma sum_pixels (V : zmodType) (G : pixel -> V) : \sum_(k <- S) G k = \sum_(t < size S) G S`_t.
Proof. by rewrite (big_nth 0) big_mkord. Qed.

(** The rows of [E_q] are different one-hot maps. *)
Lemma one_hot_maps_free q : interior S Delta q -> one_hot_maps q *m (one_hot_maps q)^T = 1%:M.
Proof.
move=> qS; apply/matrixP=> i j; rewrite !mxE.
under eq_bigr do rewrite !mxE.
rewrite -(sum_pixels (fun k => (k == q + Delta`_i)%:R * (k == q + Delta`_j)%:R)).
rewrite (bigD1_seq (q + Delta`_i)) ?qS ?mem_nth //= eqxx mul1r big1 ?addr0 => [|k /negPf->].
  by rewrite (inj_eq (addrI _)) (inj_eq shift_inj).
by rewrite mul0r.
Qed.

(** If [Phi] mixes the heads to the one-hot maps, it mixes their blends to the pixels. *)
Lemma read_pixel D a Phi q (i : 'I_(size Delta)) (X : image F D) : interior S Delta q ->
  one_hot_maps q = Phi *m head_maps a q ->
  X (q + Delta`_i) = \sum_h Phi i h *: \sum_(k <- S) a h q k *: X k.
Proof.
move=> qS mix; rewrite -(sum_one_hot X S_uniq (qS _ (mem_nth 0 (ltn_ord i)))) sum_pixels.
under [RHS]eq_bigr do rewrite sum_pixels scaler_sumr.
rewrite exchange_big /=; apply: eq_bigr => t _.
have -> : (S`_t == q + Delta`_i)%:R = \sum_h Phi i h * a h q S`_t.
  have := congr1 (fun M : 'M_(_, _) => M i t) mix; rewrite !mxE => ->.
  by apply: eq_bigr => h _; rewrite mxE.
by rewrite scaler_suml; apply: eq_bigr => h _; rewrite scalerA.
Qed.

Lemma sufficient a Din Dh Dout Phi : (Dout <= Dh)%N ->
  (forall q, interior S Delta q -> one_hot_maps q = Phi *m head_maps a q) ->
  @expresses F N Din Dh Dout S Delta a.
Proof.
move=> dims mix W b; pose V h := \sum_(i < size Delta) Phi i h *: W Delta`_i.
exists (wide_values Dh V), (wide_out F N Dh id), b => X q qS; rewrite eq_12 /conv; congr (_ + _).
rewrite [RHS](big_nth 0) big_mkord.
under [RHS]eq_bigr => i _ do rewrite (read_pixel i X qS (mix q qS)) mulmx_suml.
rewrite exchange_big; apply: eq_bigr => h _ /=.
rewrite value_matrix_wide // select_id mulmx1 mulmx_sumr; apply: eq_bigr => i _.
by rewrite -scalemxAl -scalemxAr.
Qed.

Lemma necessary a Din Dh Dout : @expresses F N Din.+1 Dh Dout.+1 S Delta a ->
  exists Phi, forall q, interior S Delta q -> one_hot_maps q = Phi *m head_maps a q.
Proof.
move=> expr; suff /fin_all_exists[Phi mix] : forall i, exists phi : 'rV_N,
    forall q, interior S Delta q -> row i (one_hot_maps q) = phi *m head_maps a q.
  by exists (\matrix_i Phi i) => q qS; apply/row_matrixP=> i; rewrite mix // row_mul rowK.
move=> i; pose unit D : 'rV[F]_D.+1 := delta_mx 0 0.
have [Wval [Wout [bout same]]] :=
  expr (fun delta => (delta == Delta`_i)%:R *: delta_mx 0 0) 0.
exists (\row_h value_matrix Wval Wout h 0 0) => q qS; apply/rowP=> t; rewrite !mxE.
have bout0 : bout = 0.
  have := same (fun _ => 0) q qS; rewrite eq_12 conv_single ?mem_nth // mul0mx.
  rewrite big1 ?add0r // => h _; rewrite big1 ?mul0mx // => k _; exact: scaler0.
have := same (fun k => (k == S`_t)%:R *: unit Din) q qS.
rewrite eq_12 conv_single ?mem_nth // bout0 addr0 -scalemxAl mul_delta_mx.
move=> /rowP/(_ 0); rewrite !mxE eqxx mulr1 eq_sym => <-; rewrite summxE; apply: eq_bigr => h _.
have -> : \sum_(k <- S) a h q k *: ((k == S`_t)%:R *: unit Din) = a h q S`_t *: unit Din.
  rewrite -(sum_one_hot (fun k => a h q k *: unit Din) S_uniq (mem_nth 0 (ltn_ord t))).
  by apply: eq_bigr => k _; rewrite !scalerA mulrC.
by rewrite -scalemxAl -rowE !mxE mulrC.
Qed.

(** ** Lemma 3, corrected

    Let [D_h >= D_out], [D_in >= 1] and [D_out >= 1], and let the attention [a h q k], any array of
    numbers, not depend on the image.  The layer can be every convolution with a kernel over
    [Delta], for every image and every interior query, if and only if there is one matrix [Phi] with
    [E_q = Phi A_q] for all these queries. *)
Theorem lemma_3 a Din Dh Dout : (Dout.+1 <= Dh)%N ->
  @expresses F N Din.+1 Dh Dout.+1 S Delta a <->
  exists Phi, forall q, interior S Delta q -> one_hot_maps q = Phi *m head_maps a q.
Proof. by move=> dims; split=> [|[Phi mix]]; [exact: necessary | exact: sufficient mix]. Qed.

(** ** As many heads as shifts

    Suppose that there is an interior query. If a layer with the same attention for every kernel and
    image can be every convolution over [Delta], it has at least as many heads as [Delta] has
    shifts: [N_h >= K^2]. *)
Theorem lemma_3_needs_K2_heads a Din Dh Dout q : interior S Delta q ->
  @expresses F N Din.+1 Dh Dout.+1 S Delta a -> (size Delta <= N)%N.
Proof.
move=> qS /necessary[Phi mix].
rewrite -[X in (X <= _)%N](mxrank1 F) -(one_hot_maps_free qS) (leq_trans (mxrankM_maxl _ _)) //.
by rewrite mix // (leq_trans (mxrankM_maxr _ _)) // rank_leq_row.
Qed.

(** Refuted: that fewer heads will do, of attention that is the same for every kernel and
    image. *)
Theorem lemma_3_fewer_heads_refuted a Din Dh Dout q : interior S Delta q -> (N < size Delta)%N ->
  ~ @expresses F N Din.+1 Dh Dout.+1 S Delta a.
Proof. by move=> qS few /(lemma_3_needs_K2_heads qS); rewrite leqNgt few. Qed.
End Lemma3.

(** The counter-example: hard heads, one for each shift; two swap their shifts at the query [q1]. *)
Definition swapped (F : ringType) (Delta : seq shift) (i j : 'I_(size Delta)) (q1 : pixel) :
    'I_(size Delta) -> pixel -> pixel -> F :=
  fun h q k => (k == q + Delta`_(if q == q1 then tperm i j h else h))%:R.

Lemma swapped_maps (F : fieldType) S Delta (i j : 'I_(size Delta)) q1 q :
  head_maps S (swapped F i j q1) q =
  (if q == q1 then perm_mx (tperm i j) else 1%:M) *m one_hot_maps F S Delta q.
Proof.
rewrite /swapped; case: ifP => qq1; rewrite ?mul1mx -?row_permE.
  by apply/matrixP=> h t; rewrite !mxE qq1.
by apply/matrixP=> h t; rewrite !mxE qq1.
Qed.

Lemma swapped_fails (F : fieldType) S Delta (i j : 'I_(size Delta)) q0 q1 Din Dh Dout :
  uniq S -> uniq Delta -> i != j -> q0 != q1 -> interior S Delta q0 -> interior S Delta q1 ->
  ~ @expresses F _ Din.+1 Dh Dout.+1 S Delta (swapped F i j q1).
Proof.
move=> S_uniq Delta_uniq ij q01 qS0 qS1 /(necessary S_uniq Delta_uniq)[Phi mix].
have Phi1 : Phi = 1%:M.
  have := congr1 (mulmx^~ (one_hot_maps F S Delta q0)^T) (mix q0 qS0).
  rewrite swapped_maps (negPf q01) mul1mx -mulmxA => /esym.
  by rewrite one_hot_maps_free // mulmx1.
have := congr1 (mulmx^~ (one_hot_maps F S Delta q1)^T) (mix q1 qS1).
rewrite swapped_maps eqxx Phi1 mul1mx /= -mulmxA one_hot_maps_free // mulmx1.
move=> /matrixP/(_ i i)/eqP; rewrite !mxE eqxx tpermL [j == i]eq_sym (negPf ij).
by rewrite oner_eq0.
Qed.

(** Refuted: Lemma 3 as printed, with a matrix [Phi] for each query, for attention that is any array
    of numbers, here for [3 x 3] kernels on [3 x 4] images, and even for heads that attend to one
    pixel each: such heads can span the one-hot maps at every interior query and yet not express
    every convolution.  They are hard, a limit of softmaxes; at finite scores nine heads do not meet
    the condition on this image at all ([K2_heads_refuted]), and ten can fail in the same way
    ([lemma_3_printed_softmax_refuted]). *)
Theorem lemma_3_printed_refuted (F : fieldType) Din Dh Dout :
  let S := grid 3 4 in let Delta := kernel_shifts 3 3 in
  ~ (forall a : 'I_9 -> pixel -> pixel -> F,
     (forall h q, interior S Delta q -> exists2 k, k \in S & forall k', a h q k' = (k' == k)%:R) ->
     (forall q, interior S Delta q ->
        exists Phi, one_hot_maps F S Delta q = Phi *m head_maps S a q) ->
     @expresses F 9 Din.+1 Dh Dout.+1 S Delta a).
Proof.
move=> S Delta printed; pose i : 'I_(size Delta) := inord 0; pose j : 'I_(size Delta) := inord 1.
have ij : i != j by rewrite -val_eqE /= !inordK.
have inside q : all (fun delta => q + delta \in S) Delta -> interior S Delta q by move/allP.
apply: (@swapped_fails F S Delta i j (1, 1) (1, 2) Din Dh Dout) => //.
1,2: by apply: inside; vm_compute.
apply: printed => [h q qS|q qS].
  by exists (q + Delta`_(if q == (1, 2) then tperm i j h else h)); rewrite // qS // mem_nth.
pose Phi : 'M[F]_(size Delta) := if q == (1, 2) then perm_mx (tperm i j) else 1%:M.
exists Phi; change (one_hot_maps F S Delta q = Phi *m head_maps S (swapped F i j (1, 2)) q).
rewrite swapped_maps mulmxA /Phi; case: ifP => _; last by rewrite !mul1mx.
by rewrite -perm_mxM tperm2 perm_mx1 mul1mx.
Qed.
