(** Theorem 2, the converse: position-only attention is a normalised convolution, and back.

    Equation (C1); book/converse.md; attnconv.theory.theorem2.attention_by_convolution. *)

From mathcomp Require Import all_ssreflect all_algebra reals sequences exp.
From AttnConv Require Import Attention.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

(** The [(2H - 1) (2W - 1)] shifts between two pixels of an image. *)
Definition all_shifts (H Wd : nat) : seq shift :=
  rectangle (- H.-1%:Z, - Wd.-1%:Z) (H + H).-1 (Wd + Wd).-1.

Lemma mem_all_shifts H Wd q k : q \in grid H Wd -> k \in grid H Wd -> k - q \in all_shifts H Wd.
Proof.
rewrite !mem_rectangle !add0r => /andP[q1 q2] /andP[k1 k2].
have axis (i j : int) n : 0 <= i < n%:Z -> 0 <= j < n%:Z ->
    - n.-1%:Z <= j - i < - n.-1%:Z + (n + n).-1%:Z.
  case: n => [|n] /andP[i0 iN] /andP[j0 jN]; first by have := le_lt_trans i0 iN; rewrite ltxx.
  have iN' : i <= n%:Z by move: iN; rewrite -addn1 PoszD ltz_addr1.
  rewrite ler_subr_addr (le_trans _ j0) /=; last by rewrite addrC subr_le0.
  by rewrite PoszD addKr (le_lt_trans _ jN) // ler_subl_addr ler_addl.
by rewrite !axis.
Qed.

(** A zero-padded convolution over all shifts is a sum over the image. *)
Lemma sum_all_shifts (V : zmodType) H Wd q (G : shift -> pixel -> V) : q \in grid H Wd ->
  \sum_(delta <- all_shifts H Wd) (if q + delta \in grid H Wd then G delta (q + delta) else 0) =
  \sum_(k <- grid H Wd) G (k - q) k.
Proof.
move=> qS; rewrite -big_mkcond /= -big_filter.
rewrite -(perm_big _ (_ : perm_eq [seq k - q | k <- grid H Wd] _)) /= ?big_map.
  by rewrite !big_seq; apply: eq_bigr => k kS; rewrite [q + _]addrC subrK.
apply: uniq_perm => [||delta].
- by rewrite map_inj_uniq ?uniq_rectangle //; apply: addIr.
- by rewrite filter_uniq ?uniq_rectangle.
rewrite mem_filter; apply/mapP/andP => [[k kS ->]|[kS _]].
  by rewrite [q + _]addrC subrK mem_all_shifts.
by exists (q + delta); rewrite // addrC addKr.
Qed.

Section Theorem2.
Variables (R : realType) (N Din Dh Dout H Wd : nat).
Let S := grid H Wd.

(** The convolution of the zero-padded image with a kernel of one number per shift; and [Z], the
    same of the image of ones. *)
Definition conv_zero D (kappa : shift -> R) (X : image R D) : image R D :=
  conv (all_shifts H Wd) (fun delta => (kappa delta)%:M) 0 (zero_pad S X).
Definition border_factor (kappa : shift -> R) (q : pixel) : R :=
  conv_zero kappa (fun _ => const_mx 1 : 'rV_1) q 0 0.

Lemma conv_zeroE D kappa (X : image R D) q : q \in S ->
  conv_zero kappa X q = \sum_(k <- S) kappa (k - q) *: X k.
Proof.
move=> qS; rewrite -(sum_all_shifts (fun delta k => kappa delta *: X k) qS) /conv_zero /conv addr0.
by apply: eq_bigr => delta _; rewrite /zero_pad; case: ifP => _; rewrite ?mul0mx ?mul_mx_scalar.
Qed.

Lemma border_factorE kappa q : q \in S -> border_factor kappa q = \sum_(k <- S) kappa (k - q).
Proof.
move=> qS; rewrite /border_factor conv_zeroE // summxE.
by apply: eq_bigr => k _; rewrite !mxE mulr1.
Qed.

(** The right-hand side of (C1). *)
Definition normalised_conv (kappa : 'I_N -> shift -> R) (V : 'I_N -> 'M_(Din, Dout)) bout
    (X : image R Din) : image R Dout :=
  fun q => bout + \sum_h (border_factor (kappa h) q)^-1 *: conv_zero (kappa h) X q *m V h.

(** ** Theorem 2

    On [H x Wd] images, a layer whose scores are [s_h(k - q)] is at every query, those at the border
    included, a sum over its heads of the zero-padded convolution with [kappa_h = exp s_h], divided
    by the border factor [Z_h(q)], times [W^(h)], plus the bias. *)
Theorem theorem_2 (s : 'I_N -> shift -> R) (Wval : 'I_N -> 'M_(Din, Dh)) (Wout : 'M_(N * Dh, Dout))
    bout X q : q \in S ->
  mhsa S (probabilities S (fun h q k => s h (k - q))) Wval Wout bout X q =
  normalised_conv (fun h delta => expR (s h delta)) (value_matrix Wval Wout) bout X q.
Proof.
move=> qS; rewrite eq_12 addrC; congr (_ + _); apply: eq_bigr => h _; congr (_ *m _).
rewrite conv_zeroE // border_factorE // scaler_sumr; apply: eq_bigr => k _.
by rewrite scalerA mulrC.
Qed.

(** ** Theorem 2, the other direction

    For any kernels [kappa_h], positive at all shifts (values at shifts that do not occur between
    two pixels do not matter), there are scores [s_h(k - q)] with which the layer is (C1) for these
    kernels, whatever the values: on every image, at every query. *)
Theorem theorem_2_converse (kappa : 'I_N -> shift -> R) :
  (forall h delta, 0 < kappa h delta) ->
  exists s : 'I_N -> shift -> R,
  forall (Wval : 'I_N -> 'M_(Din, Dh)) (Wout : 'M_(N * Dh, Dout)) bout X q, q \in S ->
  mhsa S (probabilities S (fun h q k => s h (k - q))) Wval Wout bout X q =
  normalised_conv kappa (value_matrix Wval Wout) bout X q.
Proof.
move=> kappa_gt0; exists (fun h delta => ln (kappa h delta)) => Wval Wout bout X q qS.
rewrite (theorem_2 (fun h delta => ln (kappa h delta))) //; congr (_ + _); apply: eq_bigr => h _.
have exp_ln k : expR (ln (kappa h (k - q))) = kappa h (k - q) by rewrite lnK ?posrE.
rewrite !border_factorE // !conv_zeroE //; congr (_^-1 *: _ *m _); first exact: eq_bigr.
by apply: eq_bigr => k _; rewrite exp_ln.
Qed.
End Theorem2.

(** Refuted: that the border factor can be left out, or taken into the kernel.  On an image of two
    pixels the position-only head with the scores [ln 2] to the right and [0] elsewhere is no
    zero-padded convolution, with any kernel. *)
Theorem theorem_2_one_factor_refuted (R : realType) :
  let s (_ : 'I_1) (delta : shift) : R := if delta == (0, 1) then ln 2 else 0 in
  ~ (exists kappa : shift -> R, forall (X : image R 1) q, q \in grid 1 2 ->
     mhsa (grid 1 2) (probabilities (grid 1 2) (fun h q k => s h (k - q)))
       (fun _ => 1%:M) (stack (fun _ => 1%:M)) 0 X q = conv_zero 1 2 kappa X q).
Proof.
move=> s [kappa same].
have at_query q : q \in grid 1 2 -> kappa 0 = (\sum_(k <- grid 1 2)
    (if k - q == (0, 1) then 2 else 1))^-1.
  move=> qS; have := same (fun k => (k == q)%:R%:M) q qS.
  rewrite (theorem_2 s) // /normalised_conv add0r big_ord1 border_factorE // !conv_zeroE //.
  have read (f : pixel -> R) : \sum_(k <- grid 1 2) f k *: (k == q)%:R%:M = (f q)%:M :> 'rV[R]_1.
    rewrite (bigD1_seq q) ?uniq_rectangle //= eqxx scalemx1 big1 ?addr0 // => k /negPf->.
    by rewrite scale_scalar_mx mulr0 raddf0.
  have exp_s delta : expR (s 0 delta) = if delta == (0, 1) then 2 else 1.
    by rewrite /s; case: ifP; rewrite ?expR0 // lnK ?posrE ?ltr0n.
  rewrite !read /value_matrix out_block_stack !mulmx1 subrr.
  move=> /matrixP/(_ 0 0); rewrite !mxE eqxx !mulr1n exp_s mulr1 => <-.
  by congr (_^-1); apply: eq_bigr => k _; rewrite exp_s.
have := at_query (0, 0) isT; rewrite (at_query (0, 1) isT) => /invr_inj.
rewrite !big_cons !big_nil /= !addr0 => /eqP.
by rewrite (inj_eq (addrI _)) -subr_eq0 -opprB oppr_eq0 addrK oner_eq0.
Qed.
